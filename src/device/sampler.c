/* SPDX-License-Identifier: Apache-2.0 */

/* All vendors together, the host's memory, and the facts of every process that holds something. See
 * sampler.h. */

#include "device/process_cache.h"

#include "base/clock.h"
#include "base/num.h"

#include <stdlib.h>
#include <sys/stat.h>

#define TIMEOUT_NS UINT64_C(2000000000)
#define VENDORS    2u

struct plim_sampler {
    const struct plim_world *world;
    uint64_t timeout_ns;
    struct plim_worker *workers[VENDORS]; /* NULL: none, or nothing of this vendor is here */
    struct plim_sample
        seen[VENDORS]; /* the devices of its last answer: who hangs when it does not */
    struct plim_process_cache processes;
    bool scripted;
};

static const char *real_variable(const char *name)
{
    return getenv(name); // NOLINT(concurrency-mt-unsafe)
}

const struct plim_world *plim_world_real(void)
{
    static const struct plim_world world = {.root = "", .getenv = real_variable};
    return &world;
}

enum plim_status plim_sampler_open(const struct plim_sampler_options *options,
                                   struct plim_sampler **out, struct plim_err *err)
{
    static const struct plim_vendor *const vendors[VENDORS] = {&plim__vendor_nvml,
                                                               &plim__vendor_drm};
    struct stat info;
    if (options->script != NULL && stat(options->script, &info) != 0) {
        return plim__fail(err, PLIM_E_NOINPUT, "there is no '%.150s'", options->script);
    }
    if (options->script != NULL && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))) {
        PLIM_TRY(plim__script_check(options->script, err)); /* a pipe can be read once only */
    }
    struct plim_sampler *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a sampler");
    }
    s->world = options->world != NULL ? options->world : plim_world_real();
    s->timeout_ns = options->timeout_ns != 0 ? options->timeout_ns : TIMEOUT_NS;
    s->processes.world = s->world;
    s->scripted = options->script != NULL;
    enum plim_status st = PLIM_OK;
    for (size_t i = 0; st == PLIM_OK && i < (s->scripted ? 1 : VENDORS); i++) {
        st = plim__worker_new(s->scripted ? &plim__vendor_script : vendors[i], s->world,
                              options->script, &s->workers[i], err);
    }
    if (st != PLIM_OK) {
        plim_sampler_close(s);
        return st;
    }
    *out = s;
    return PLIM_OK;
}

void plim_sampler_close(struct plim_sampler *s)
{
    for (size_t i = 0; s != NULL && i < VENDORS; i++) {
        plim__worker_drop(s->workers[i]);
        plim_sample_fini(&s->seen[i]);
    }
    if (s != NULL) {
        plim_process_cache_fini(&s->processes);
    }
    free(s);
}

/* Remember who is there, without figures. */
static enum plim_status remember(struct plim_sample *seen, const struct plim_sample *from,
                                 size_t first, struct plim_err *err)
{
    seen->devices.n = 0;
    for (size_t i = first; i < from->devices.n; i++) {
        struct plim_device_sample d = from->devices.items[i];
        d.valid = 0;
        d.parent = d.parent == PLIM_NO_PARENT ? d.parent : d.parent - (uint32_t)first;
        PLIM_TRY(plim_vec_push(&seen->devices, err, d));
    }
    return PLIM_OK;
}

static enum plim_status add_hung(const struct plim_sample *seen, struct plim_sample *out,
                                 struct plim_err *err)
{
    uint32_t base = (uint32_t)out->devices.n;
    plim_vec_foreach (old, &seen->devices) {
        struct plim_device_sample d = *old;
        d.state = PLIM_DEVICE_HUNG;
        d.parent = d.parent == PLIM_NO_PARENT ? d.parent : d.parent + base;
        PLIM_TRY(plim_vec_push(&out->devices, err, d));
    }
    return PLIM_OK;
}

static enum plim_status ask(struct plim_sampler *s, size_t vendor, struct plim_sample *out,
                            struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    size_t first = out->devices.n;
    if (s->workers[vendor] == NULL) {
        return PLIM_OK;
    }
    if (!plim__worker_ask(s->workers[vendor], s->timeout_ns, out, &st)) {
        return add_hung(&s->seen[vendor], out, err);
    }
    if (st == PLIM_E_NOMEM) {
        return plim__fail(err, st, "no memory for a sample");
    }
    return st == PLIM_OK ? remember(&s->seen[vendor], out, first, err) : PLIM_OK;
}

static enum plim_status add_facts(struct plim_sampler *s, struct plim_sample *out,
                                  struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    plim_process_cache_begin(&s->processes);
    for (size_t i = 0; st == PLIM_OK && i < out->uses.n; i++) {
        struct plim_process_facts facts;
        bool first;
        st = plim_process_cache_get(&s->processes, out->uses.items[i].pid, &facts, &first, err);
        if (st == PLIM_OK && first) {
            st = plim_vec_push(&out->processes, err, facts);
        }
    }
    plim_process_cache_end(&s->processes);
    return st;
}

enum plim_status plim_sampler_take(struct plim_sampler *s, struct plim_sample *out,
                                   struct plim_err *err)
{
    plim_sample_reset(out);
    for (size_t i = 0; i < VENDORS; i++) {
        PLIM_TRY(ask(s, i, out, err));
    }
    if (!s->scripted) {
        out->time_ns = plim_wall_ns();
        (void)plim_host_memory(s->world, &out->host_total, &out->host_available);
        PLIM_TRY(add_facts(s, out, err));
    }
    plim_sample_balance(out);
    return PLIM_OK;
}
