/* SPDX-License-Identifier: Apache-2.0 */

/* Fuzz target: a traffic file. Whatever it holds, it is read into arrivals that keep their invariants, or
 * refused with an error that says something. The first byte's lowest bit asks for strict reading. */

#include "format/traffic.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sound(const struct plim_traffic *t)
{
    uint64_t last = 0;
    plim_vec_foreach (a, &t->arrivals) {
        bool shaped = (a->prompt > 0 || a->images > 0) && a->output > 0;
        bool hashed = (uint64_t)a->first_hash + a->n_hashes <= t->hashes.n;
        bool known = a->session == PLIM_NO_ID || a->session < t->sessions;
        if (a->at_ns < last || !shaped || !hashed || !known) {
            abort();
        }
        last = a->at_ns;
    }
    if (t->arrivals.n == 0 || t->arrivals.items[0].at_ns != 0) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_traffic traffic;
    struct plim_err err = {0};
    struct plim_traffic_options options = {.strict = size > 0 && (data[0] & 1) != 0 && data[0] < 8};
    size_t skip = options.strict ? 1 : 0;
    struct plim_source_bytes state;
    struct plim_source source =
        plim_source_bytes(&state, (struct plim_str){(const char *)data + skip, size - skip});
    if (plim_traffic_collect(&source, &options, &traffic, NULL, NULL, &err) == PLIM_OK) {
        sound(&traffic);
        plim_traffic_fini(&traffic);
    } else if (err.message[0] == '\0') {
        abort();
    }
    return 0;
}
