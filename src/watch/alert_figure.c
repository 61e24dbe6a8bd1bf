/* SPDX-License-Identifier: Apache-2.0 */

/* Figures of an observation by name, for rules: those of the nouns' own tables, and a few made of them. */

#include "base/near.h"
#include "base/num.h"
#include "watch/alert_int.h"

#include <stdio.h>

/* X(scope, NAME, "key"): figures that are made of others. Ratios are of 1. */
#define DERIVED_MAP(X)                                                                             \
    X(DEVICE, USED_RATIO, "used_ratio")            /* of what is not reserved */                   \
    X(DEVICE, UNKNOWN_BYTES, "unknown_bytes")      /* used, and no listed process has it */        \
    X(DEVICE, LOST, "lost")                        /* 1: lost, hung or in error; else 0 */         \
    X(PROCESS, BYTES, "bytes")                     /* on the device */                             \
    X(PROCESS, RSS_BYTES, "rss_bytes")             /* of host memory */                            \
    X(ALLOCATOR, SLACK_BYTES, "slack_bytes")       /* reserved - allocated */                      \
    X(ALLOCATOR, STRANDED_RATIO, "stranded_ratio") /* inactive_split / reserved */                 \
    X(ENGINE, UP, "up")                            /* 1: it answered, else 0 */                    \
    X(HOST, AVAILABLE_BYTES, "available_bytes")                                                    \
    X(HOST, AVAILABLE_RATIO, "available_ratio")

enum derived {
#define X(scope, name, key) scope##_##name,
    DERIVED_MAP(X)
#undef X
};

struct named {
    const char *key;
    enum plim_scope scope;
    int index;
};

static const struct named names[] = {
#define X(name, key) {key, PLIM_SCOPE_DEVICE, PLIM_FIGURE_##name},
    PLIM_FIGURE_MAP(X)
#undef X
#define X(name, key, kind) {key, PLIM_SCOPE_ALLOCATOR, PLIM_ALLOCATOR_##name},
        PLIM_ALLOCATOR_FIGURE_MAP(X)
#undef X
#define X(name, key, kind) {key, PLIM_SCOPE_ENGINE, PLIM_ENGINE_FIGURE_##name},
            PLIM_ENGINE_FIGURE_MAP(X)
#undef X
#define X(scope, name, key) {key, PLIM_SCOPE_##scope, -1 - scope##_##name},
                DERIVED_MAP(X)
#undef X
};

static const char *const scopes[] = {
#define X(name, text) text,
    PLIM_SCOPE_MAP(X)
#undef X
};

enum plim_status plim__figure_find(const char *name, struct plim_figure_name *out,
                                   struct plim_err *err)
{
    char best[64] = "";
    unsigned least = PLIM_NEAR_MAX;
    for (size_t i = 0; i < PLIM_COUNT_OF(names); i++) {
        char full[64];
        snprintf(full, sizeof(full), "%s.%s", scopes[names[i].scope], names[i].key);
        if (strcmp(full, name) == 0) {
            *out = (struct plim_figure_name){names[i].scope, names[i].index};
            return PLIM_OK;
        }
        unsigned d = plim_near(name, full);
        if (d < least) {
            least = d;
            memcpy(best, full, sizeof(best));
        }
    }
    plim__err_set(err, PLIM_E_USAGE, "unknown figure '%.60s'", name);
    if (best[0] != '\0') {
        plim__err_hint(err, "did you mean '%s'?", best);
    } else {
        plim__err_hint(
            err, "figures are device.KEY, process.KEY, allocator.KEY, engine.KEY and host.KEY, "
                 "with the keys of plimsoll status --format json");
    }
    return PLIM_E_USAGE;
}

static void know(struct plim_reading *out, double value)
{
    out->known = true;
    out->value = value;
}

static void name_device(struct plim_reading *out, const struct plim_sample *sample, uint32_t device)
{
    out->subject.device = device;
    if (device < sample->devices.n) {
        memcpy(out->subject.device_uuid, sample->devices.items[device].uuid,
               sizeof(out->subject.device_uuid));
    }
}

static void name_process(struct plim_reading *out, const struct plim_sample *sample, uint32_t pid)
{
    const struct plim_process_facts *facts = plim_sample_process(sample, pid);
    out->subject.pid = pid;
    if (facts != NULL) {
        out->subject.start_ticks = facts->start_ticks;
        memcpy(out->subject.process, facts->name, sizeof(out->subject.process));
    }
}

static void read_device(const struct plim_observation *now, int index, uint32_t i,
                        struct plim_reading *out)
{
    const struct plim_device_sample *d = &now->sample.devices.items[i];
    uint64_t bytes = 0;
    name_device(out, &now->sample, i);
    switch (index) {
    case -1 - DEVICE_USED_RATIO: {
        uint64_t reserved =
            plim_has_figure(d, PLIM_FIGURE_RESERVED) ? d->figure[PLIM_FIGURE_RESERVED] : 0;
        uint64_t usable = plim_sub_sat(d->figure[PLIM_FIGURE_TOTAL], reserved);
        if (plim_has_figure(d, PLIM_FIGURE_TOTAL) && plim_has_figure(d, PLIM_FIGURE_USED) &&
            usable > 0) {
            know(out, (double)d->figure[PLIM_FIGURE_USED] / (double)usable);
        }
        return;
    }
    case -1 - DEVICE_UNKNOWN_BYTES:
        if (plim_sample_unknown(&now->sample, i, &bytes)) {
            know(out, (double)bytes);
        }
        return;
    case -1 - DEVICE_LOST:
        know(out, d->state == PLIM_DEVICE_LOST || d->state == PLIM_DEVICE_HUNG ||
                      d->state == PLIM_DEVICE_ERROR);
        return;
    default:
        if (plim_has_figure(d, (enum plim_figure)index)) {
            know(out, (double)d->figure[index]);
        }
    }
}

static void read_process(const struct plim_observation *now, int index,
                         const struct plim_process_use *use, struct plim_reading *out)
{
    name_device(out, &now->sample, use->device);
    name_process(out, &now->sample, use->pid);
    const struct plim_process_facts *facts = plim_sample_process(&now->sample, use->pid);
    if (index == -1 - PROCESS_BYTES && use->bytes_valid) {
        know(out, (double)use->bytes);
    }
    if (index == -1 - PROCESS_RSS_BYTES && facts != NULL && facts->rss != 0) {
        know(out, (double)facts->rss);
    }
}

static bool has(uint64_t valid, int figure)
{
    return (valid >> figure & 1) != 0;
}

static void read_allocator(const struct plim_observation *now, int index,
                           const struct plim_allocator_now *a, struct plim_reading *out)
{
    name_device(out, &now->sample, a->device);
    name_process(out, &now->sample, a->pid);
    uint64_t reserved = a->figure[PLIM_ALLOCATOR_RESERVED];
    bool whole = has(a->valid, PLIM_ALLOCATOR_RESERVED) && reserved > 0;
    if (index >= 0 && has(a->valid, index)) {
        know(out, (double)a->figure[index]);
    }
    if (index == -1 - ALLOCATOR_SLACK_BYTES && whole && has(a->valid, PLIM_ALLOCATOR_ALLOCATED)) {
        know(out, (double)plim_sub_sat(reserved, a->figure[PLIM_ALLOCATOR_ALLOCATED]));
    }
    if (index == -1 - ALLOCATOR_STRANDED_RATIO && whole &&
        has(a->valid, PLIM_ALLOCATOR_INACTIVE_SPLIT)) {
        know(out, (double)a->figure[PLIM_ALLOCATOR_INACTIVE_SPLIT] / (double)reserved);
    }
    out->known = out->known && !a->stale;
}

static void read_engine(const struct plim_observation *now, int index,
                        const struct plim_engine_now *e, struct plim_reading *out)
{
    out->engine = e->name;
    if (e->pid != 0) {
        name_process(out, &now->sample, e->pid);
    }
    if (index == -1 - ENGINE_UP) {
        know(out, e->up);
    } else if (e->up && has(e->valid, index)) {
        know(out, e->figure[index]);
    }
}

static void read_host(const struct plim_sample *sample, int index, struct plim_reading *out)
{
    if (sample->host_total == 0) {
        return;
    }
    know(out, (double)sample->host_available);
    if (index == -1 - HOST_AVAILABLE_RATIO) {
        out->value /= (double)sample->host_total;
    }
}

bool plim__figure_at(const struct plim_observation *now, struct plim_figure_name name, size_t i,
                     struct plim_reading *out)
{
    const size_t counts[PLIM_SCOPES] = {[PLIM_SCOPE_DEVICE] = now->sample.devices.n,
                                        [PLIM_SCOPE_PROCESS] = now->sample.uses.n,
                                        [PLIM_SCOPE_ALLOCATOR] = now->allocators.n,
                                        [PLIM_SCOPE_ENGINE] = now->engines.n,
                                        [PLIM_SCOPE_HOST] = 1};
    if (i >= counts[name.scope]) {
        return false;
    }
    *out = (struct plim_reading){.subject.device = PLIM_NO_DEVICE, .engine = ""};
    switch (name.scope) {
    case PLIM_SCOPE_DEVICE:
        read_device(now, name.index, (uint32_t)i, out);
        break;
    case PLIM_SCOPE_PROCESS:
        read_process(now, name.index, &now->sample.uses.items[i], out);
        break;
    case PLIM_SCOPE_ALLOCATOR:
        read_allocator(now, name.index, &now->allocators.items[i], out);
        break;
    case PLIM_SCOPE_ENGINE:
        read_engine(now, name.index, &now->engines.items[i], out);
        break;
    default:
        read_host(&now->sample, name.index, out);
    }
    return true;
}
