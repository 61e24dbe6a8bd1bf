/* SPDX-License-Identifier: Apache-2.0 */

/* A saved detector that may come from anywhere: it is refused, or works: it takes observations, and
 * what it saves is read again. */

#include "detect/detect.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A machine that the saved subjects may be on. */
static void look(struct plim_detector *d)
{
    struct plim_device_sample device = {.uuid = "GPU-1", .parent = PLIM_NO_PARENT};
    struct plim_process_use use = {.pid = 7, .bytes_valid = true, .bytes = 1u << 30};
    struct plim_observation o = {.mono_ns = UINT64_C(1) << 50};
    size_t n;
    plim_set_figure(&device, PLIM_FIGURE_TOTAL, UINT64_C(1) << 36);
    plim_set_figure(&device, PLIM_FIGURE_USED, UINT64_C(1) << 31);
    if (plim_vec_push(&o.sample.devices, NULL, device) == PLIM_OK &&
        plim_vec_push(&o.sample.uses, NULL, use) == PLIM_OK) {
        for (int i = 0; i < 200; i++) {
            o.mono_ns += UINT64_C(61000000000);
            o.sample.time_ns += UINT64_C(61000000000);
            o.sample.uses.items[0].bytes += 1u << 22;
            if (plim_detector_step(d, &o, NULL) != PLIM_OK) {
                abort();
            }
        }
    }
    const struct plim_finding *f = plim_detector_findings(d, &n);
    for (size_t i = 0; i < n; i++) {
        if (!(f[i].confidence >= 0 && f[i].confidence <= 1)) {
            abort();
        }
    }
    plim_sample_fini(&o.sample);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_detector *d;
    struct plim_buf saved = {0};
    if (plim_detector_new(NULL, &d, NULL) != PLIM_OK) {
        return 0;
    }
    if (plim_detector_load(d, (struct plim_str){(const char *)data, size}, NULL) == PLIM_OK) {
        look(d);
    }
    plim_detector_save(d, &saved);
    if (plim_buf_status(&saved, NULL) == PLIM_OK &&
        plim_detector_load(d, plim_buf_str(&saved), NULL) != PLIM_OK) {
        abort();
    }
    plim_buf_fini(&saved);
    plim_detector_free(d);
    return 0;
}
