/* SPDX-License-Identifier: Apache-2.0 */

/* Rows of metrics: what is observed. See metrics.h; the table says which figure each is asked for. */

#include "report/metrics.h"

#include <plimsoll/shm.h>
#include <stdio.h>
#include <string.h>

#define DEVICES(x)   (&(x)->state->now->sample.devices)
#define USES(x)      (&(x)->state->now->sample.uses)
#define PROCESSES(x) (&(x)->state->now->sample.processes)

/* What names a device: its uuid, else its PCI address, else its place. */
void plim__device_label(struct plim__scrape *x, uint32_t device)
{
    char text[32];
    if (device >= DEVICES(x)->n) {
        return;
    }
    const struct plim_device_sample *d = &DEVICES(x)->items[device];
    if (d->uuid[0] == '\0' && d->pci[0] == '\0') {
        (void)snprintf(text, sizeof(text), "device-%u", device);
        plim__label(x, "uuid", text);
    } else {
        plim__label(x, "uuid", d->uuid[0] != '\0' ? d->uuid : d->pci);
    }
}

void plim__process_labels(struct plim__scrape *x, uint32_t pid)
{
    const struct plim_process_facts *p = plim_sample_process(&x->state->now->sample, pid);
    plim__label_u64(x, "pid", pid);
    plim__label(x, "process", p != NULL ? p->name : "");
}

void plim__rows_build(struct plim__scrape *x)
{
    if (plim__row(x)) {
        plim__label(x, "version", x->state->version);
        plim__value(x, 1);
    }
}

void plim__rows_host(struct plim__scrape *x)
{
    const struct plim_sample *s = &x->state->now->sample;
    if (s->host_total != 0 && plim__row(x)) {
        plim__value(x, x->metric->arg == 0 ? s->host_total : s->host_available);
    }
}

/* ---- devices ---- */

void plim__rows_device_info(struct plim__scrape *x)
{
    for (uint32_t i = 0; i < DEVICES(x)->n; i++) {
        const struct plim_device_sample *d = &DEVICES(x)->items[i];
        if (!plim__row(x)) {
            continue;
        }
        plim__device_label(x, i);
        plim__label_u64(x, "device", i);
        plim__label(x, "name", d->name);
        plim__label(x, "pci", d->pci);
        plim__label(x, "vendor", plim_vendor_text(d->vendor));
        if (d->parent < DEVICES(x)->n) {
            plim__label(x, "parent", DEVICES(x)->items[d->parent].uuid);
        }
        plim__label(x, "unified", d->unified ? "true" : "");
        plim__value(x, 1);
    }
}

/* A row for each device. */
static bool device_row(struct plim__scrape *x, uint32_t device)
{
    if (!plim__row(x)) {
        return false;
    }
    plim__device_label(x, device);
    return true;
}

void plim__rows_device_up(struct plim__scrape *x)
{
    for (uint32_t i = 0; i < DEVICES(x)->n; i++) {
        enum plim_device_state state = DEVICES(x)->items[i].state;
        if (device_row(x, i)) {
            plim__value(x, state != PLIM_DEVICE_LOST && state != PLIM_DEVICE_HUNG &&
                               state != PLIM_DEVICE_ERROR);
        }
    }
}

void plim__rows_device_state(struct plim__scrape *x)
{
    for (uint32_t i = 0; i < DEVICES(x)->n; i++) {
        for (unsigned state = 0; state < PLIM_DEVICE_STATES; state++) {
            if (device_row(x, i)) {
                plim__label(x, "state", plim_device_state_text((enum plim_device_state)state));
                plim__value(x, DEVICES(x)->items[i].state == state);
            }
        }
    }
}

void plim__rows_device_odd(struct plim__scrape *x)
{
    for (uint32_t i = 0; i < DEVICES(x)->n; i++) {
        if (device_row(x, i)) {
            plim__value(x, DEVICES(x)->items[i].odd);
        }
    }
}

void plim__rows_device_figure(struct plim__scrape *x)
{
    for (uint32_t i = 0; i < DEVICES(x)->n; i++) {
        const struct plim_device_sample *d = &DEVICES(x)->items[i];
        if (plim_has_figure(d, (enum plim_figure)x->metric->arg) && device_row(x, i)) {
            plim__value(x, d->figure[x->metric->arg]);
        }
    }
}

void plim__rows_device_ecc(struct plim__scrape *x)
{
    static const enum plim_figure figures[] = {PLIM_FIGURE_ECC_CORRECTED,
                                               PLIM_FIGURE_ECC_UNCORRECTED};
    for (uint32_t i = 0; i < DEVICES(x)->n; i++) {
        const struct plim_device_sample *d = &DEVICES(x)->items[i];
        for (unsigned k = 0; k < 2; k++) {
            if (plim_has_figure(d, figures[k]) && device_row(x, i)) {
                plim__label(x, "kind", k == 0 ? "corrected" : "uncorrected");
                plim__value(x, d->figure[figures[k]]);
            }
        }
    }
}

void plim__rows_device_unknown(struct plim__scrape *x)
{
    for (uint32_t i = 0; i < DEVICES(x)->n; i++) {
        uint64_t bytes;
        if (plim_sample_unknown(&x->state->now->sample, i, &bytes) && device_row(x, i)) {
            plim__value(x, bytes);
        }
    }
}

void plim__rows_device_ledger(struct plim__scrape *x)
{
    for (uint32_t i = 0; i < DEVICES(x)->n; i++) {
        uint64_t bytes[PLIM_LEDGER_PARTS];
        char name[32]; /* the key without its unit */
        bool known = plim_observation_ledger(x->state->now, i, bytes);
        for (unsigned part = 0; known && part < PLIM_LEDGER_PARTS; part++) {
            if (device_row(x, i)) {
                const char *key = plim_ledger_part_key((enum plim_ledger_part)part);
                (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(key, "_"), key);
                plim__label(x, "part", name);
                plim__value(x, bytes[part]);
            }
        }
    }
}

/* ---- processes ---- */

void plim__rows_process_info(struct plim__scrape *x)
{
    plim_vec_foreach (p, PROCESSES(x)) {
        if (p->start_ticks != 0 && plim__row(x)) {
            plim__label_u64(x, "pid", p->pid);
            plim__label(x, "process", p->name);
            plim__label(x, "container", p->container);
            plim__label(x, "pod", p->pod);
            plim__label(x, "unit", p->unit);
            plim__value(x, 1);
        }
    }
}

void plim__rows_process_resident(struct plim__scrape *x)
{
    plim_vec_foreach (p, PROCESSES(x)) {
        if (p->start_ticks != 0 && plim__row(x)) {
            plim__label_u64(x, "pid", p->pid);
            plim__label(x, "process", p->name);
            plim__value(x, p->rss);
        }
    }
}

/* A row for a process on a device. */
static bool process_row(struct plim__scrape *x, uint32_t device, uint32_t pid)
{
    if (!plim__row(x)) {
        return false;
    }
    plim__device_label(x, device);
    plim__process_labels(x, pid);
    return true;
}

static void instance_labels(struct plim__scrape *x, const struct plim_process_use *use)
{
    if (use->gpu_instance != PLIM_NO_INSTANCE) {
        plim__label_u64(x, "gpu_instance", use->gpu_instance);
    }
    if (use->compute_instance != PLIM_NO_INSTANCE) {
        plim__label_u64(x, "compute_instance", use->compute_instance);
    }
}

void plim__rows_process_memory(struct plim__scrape *x)
{
    plim_vec_foreach (use, USES(x)) {
        if (use->bytes_valid && process_row(x, use->device, use->pid)) {
            instance_labels(x, use);
            plim__value(x, use->bytes);
        }
    }
}

void plim__rows_process_ledger(struct plim__scrape *x)
{
    static const char *const parts[] = {"allocated", "slack", "outside", "unknown"};
    plim_vec_foreach (use, USES(x)) {
        struct plim_use_books b = plim_observation_books(x->state->now, use);
        const uint64_t bytes[] = {b.allocated, b.slack, b.outside, b.unknown};
        for (unsigned i = 0; b.told && i < 4; i++) {
            if (process_row(x, use->device, use->pid)) {
                plim__label(x, "part", parts[i]);
                instance_labels(x, use);
                plim__value(x, bytes[i]);
            }
        }
    }
}

/* ---- allocators and owners ---- */

static bool allocator_row(struct plim__scrape *x, const struct plim_allocator_now *a)
{
    char rank[16];
    if (!process_row(x, a->device, a->pid)) {
        return false;
    }
    plim__label_u64(x, "ordinal", a->ordinal);
    (void)snprintf(rank, sizeof(rank), "%d", a->rank);
    plim__label(x, "rank", a->rank >= 0 ? rank : "");
    return true;
}

void plim__rows_allocator_figure(struct plim__scrape *x)
{
    plim_vec_foreach (a, &x->state->now->allocators) {
        if ((a->valid >> x->metric->arg & 1) != 0 && allocator_row(x, a)) {
            plim__value(x, a->figure[x->metric->arg]);
        }
    }
}

void plim__rows_allocator_stale(struct plim__scrape *x)
{
    plim_vec_foreach (a, &x->state->now->allocators) {
        if (allocator_row(x, a)) {
            plim__value(x, a->stale);
        }
    }
}

void plim__rows_owner_figure(struct plim__scrape *x)
{
    plim_vec_foreach (o, &x->state->now->owners) {
        const uint64_t figures[] = {o->charged, o->peak, o->failures};
        if (process_row(x, o->device, o->pid)) {
            plim__label(x, "owner", plim_owner_text(o->owner));
            plim__label(x, "outside", o->outside ? "true" : "false");
            plim__label_u64(x, "ordinal", o->ordinal);
            plim__value(x, figures[x->metric->arg]);
        }
    }
}

/* ---- engines ---- */

static bool engine_row(struct plim__scrape *x, const struct plim_engine_now *e)
{
    if (!plim__row(x)) {
        return false;
    }
    plim__label(x, "engine", e->name);
    plim__label(x, "rank", e->rank);
    return true;
}

void plim__rows_engine_info(struct plim__scrape *x)
{
    static const char *const kinds[] = {
#define PLIM__X(name, text) text,
        PLIM_ENGINE_KIND_MAP(PLIM__X)
#undef PLIM__X
    };
    plim_vec_foreach (e, &x->state->now->engines) {
        if (engine_row(x, e)) {
            plim__label(x, "kind",
                        (unsigned)e->kind < PLIM_ENGINE_KINDS ? kinds[e->kind] : "unknown");
            plim__label(x, "model", e->model);
            if (e->pid != 0) {
                plim__label_u64(x, "pid", e->pid);
            }
            plim__value(x, 1);
        }
    }
}

void plim__rows_engine_up(struct plim__scrape *x)
{
    plim_vec_foreach (e, &x->state->now->engines) {
        if (engine_row(x, e)) {
            plim__value(x, e->up);
        }
    }
}

void plim__rows_engine_figure(struct plim__scrape *x)
{
    plim_vec_foreach (e, &x->state->now->engines) {
        if ((e->valid >> x->metric->arg & 1) != 0 && engine_row(x, e)) {
            plim__value_real(x, e->figure[x->metric->arg]);
        }
    }
}

void plim__rows_engine_component(struct plim__scrape *x)
{
    static const char *const parts[] = {
#define PLIM__X(name, text) text,
        PLIM_COMPONENT_MAP(PLIM__X)
#undef PLIM__X
    };
    plim_vec_foreach (e, &x->state->now->engines) {
        for (unsigned i = 0; i < PLIM_COMPONENTS; i++) {
            if ((e->component_valid >> i & 1) != 0 && engine_row(x, e)) {
                plim__label(x, "component", parts[i]);
                plim__value(x, e->component[i]);
            }
        }
    }
}
