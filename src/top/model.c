/* SPDX-License-Identifier: Apache-2.0 */

/* From a state to rows with trends. */

#include "top/model.h"

#include "base/num.h"

#include <string.h>

#define GROWTH_LEAST_NS UINT64_C(5000000000) /* a trend says nothing before it is so long */
#define TRENDS_MOST     4096

static uint64_t key_of(uint64_t a, uint64_t b, uint64_t c)
{
    return plim_hash_u64(plim_hash_u64(plim_hash_u64(a) ^ b) ^ c);
}

/* The trend of a key, with one more value; SIZE_MAX when there is no room. */
static size_t add_value(struct plim_top_model *m, uint64_t key, uint64_t value)
{
    size_t i = 0;
    for (; i < m->trends.n && m->trends.items[i].key != key; i++) {
    }
    if (i == m->trends.n &&
        (m->trends.n == TRENDS_MOST ||
         plim_vec_push(&m->trends, NULL, (struct plim_top_trend){.key = key}) != PLIM_OK)) {
        return SIZE_MAX;
    }
    struct plim_top_trend *t = &m->trends.items[i];
    if (t->step == m->steps && t->n > 0) {
        return i; /* the same process twice on one device */
    }
    if (t->n == PLIM_TOP_TREND_VALUES) {
        memmove(t->value, t->value + 1, (PLIM_TOP_TREND_VALUES - 1) * sizeof(t->value[0]));
        memmove(t->time_ns, t->time_ns + 1, (PLIM_TOP_TREND_VALUES - 1) * sizeof(t->time_ns[0]));
        t->n--;
    }
    t->value[t->n] = value;
    t->time_ns[t->n] = m->now_ns;
    t->n++;
    t->step = m->steps;
    return i;
}

/* Trends of what is gone make room. */
static void drop_trends(struct plim_top_model *m)
{
    size_t kept = 0;
    plim_vec_foreach (t, &m->trends) {
        if (m->steps - t->step < PLIM_TOP_TREND_VALUES) {
            m->trends.items[kept++] = *t;
        }
    }
    m->trends.n = kept;
}

/* From the first to the last value of a trend: what people mean by "how fast does it grow". */
static void set_growth(const struct plim_top_model *m, struct plim_top_process *p)
{
    const struct plim_top_trend *t = p->trend != SIZE_MAX ? &m->trends.items[p->trend] : NULL;
    if (t == NULL || t->n < 2 || t->time_ns[t->n - 1] - t->time_ns[0] < GROWTH_LEAST_NS) {
        return;
    }
    double seconds = (double)(t->time_ns[t->n - 1] - t->time_ns[0]) / 1e9;
    p->growth = ((double)t->value[t->n - 1] - (double)t->value[0]) / seconds;
    p->growth_valid = true;
}

static uint64_t stranded_of(const struct plim_observation *o, const struct plim_process_use *use)
{
    uint64_t sum = 0;
    plim_vec_foreach (a, &o->allocators) {
        if (a->pid == use->pid && a->device == use->device &&
            (a->valid >> PLIM_ALLOCATOR_INACTIVE_SPLIT & 1) != 0) {
            sum = plim_add_sat(sum, a->figure[PLIM_ALLOCATOR_INACTIVE_SPLIT]);
        }
    }
    return sum;
}

static enum plim_status add_process(struct plim_top_model *m, const struct plim_process_use *use,
                                    struct plim_err *err)
{
    const struct plim_observation *o = m->state->now;
    const struct plim_process_facts *facts = plim_sample_process(&o->sample, use->pid);
    struct plim_top_process p = {
        .use = use, .facts = facts, .books = plim_observation_books(o, use)};
    p.stranded = plim_min_u64(stranded_of(o, use), p.books.slack);
    uint64_t start = facts != NULL ? facts->start_ticks : 0;
    p.trend = use->bytes_valid ? add_value(m, key_of(use->pid, start, use->device), use->counted)
                               : SIZE_MAX;
    set_growth(m, &p);
    return plim_vec_push(&m->processes, err, p);
}

/* Of a device: every process's share goes to a part, the rest is what the driver says. */
static void set_parts(struct plim_top_model *m, struct plim_top_device *d, uint32_t index)
{
    uint64_t unknown = 0;
    plim_vec_foreach (p, &m->processes) {
        if (p->use->device != index) {
            continue;
        }
        d->part[PLIM_TOP_PART_LIVE] += p->books.allocated;
        d->part[PLIM_TOP_PART_STRANDED] += p->stranded;
        d->part[PLIM_TOP_PART_RELEASABLE] += p->books.slack - p->stranded;
        d->part[PLIM_TOP_PART_OUTSIDE] += p->books.told ? p->books.outside + p->books.unknown : 0;
        d->part[PLIM_TOP_PART_OTHERS] += p->books.told ? 0 : p->use->counted;
    }
    if (plim_sample_unknown(&m->state->now->sample, index, &unknown)) {
        d->part[PLIM_TOP_PART_UNKNOWN] = unknown;
    }
    d->part[PLIM_TOP_PART_DRIVER] = d->sample->figure[PLIM_FIGURE_RESERVED];
    d->part[PLIM_TOP_PART_FREE] = d->sample->figure[PLIM_FIGURE_FREE];
}

static enum plim_status add_device(struct plim_top_model *m, uint32_t index, struct plim_err *err)
{
    const struct plim_device_sample *sample = &m->state->now->sample.devices.items[index];
    struct plim_top_device d = {.sample = sample, .trend = SIZE_MAX};
    d.known =
        plim_has_figure(sample, PLIM_FIGURE_TOTAL) && plim_has_figure(sample, PLIM_FIGURE_USED);
    d.total = sample->figure[PLIM_FIGURE_TOTAL];
    d.used = sample->figure[PLIM_FIGURE_USED];
    d.left = m->state->left != NULL && m->state->left[index].valid ? &m->state->left[index] : NULL;
    if (d.known) {
        set_parts(m, &d, index);
        d.trend = add_value(m, key_of(UINT64_MAX, 0, index), d.used);
    }
    return plim_vec_push(&m->devices, err, d);
}

static bool same_engine(const struct plim_engine_now *a, const struct plim_engine_now *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->model, b->model) == 0 &&
           strcmp(a->rank, b->rank) == 0;
}

/* Engines are asked less often than screens are drawn: rates are between two answers. */
static enum plim_status add_engine(struct plim_top_model *m, const struct plim_engine_now *e,
                                   struct plim_err *err)
{
    plim_vec_foreach (pair, &m->engines) {
        if (same_engine(&pair->newer, e)) {
            if (pair->newer.told_ns != e->told_ns) {
                pair->older = pair->newer;
                pair->newer = *e;
            }
            pair->step = m->steps;
            return PLIM_OK;
        }
    }
    return plim_vec_push(&m->engines, err, (struct plim_top_pair){.newer = *e, .step = m->steps});
}

static void drop_engines(struct plim_top_model *m)
{
    size_t kept = 0;
    plim_vec_foreach (pair, &m->engines) {
        if (pair->step == m->steps) {
            m->engines.items[kept++] = *pair;
        }
    }
    m->engines.n = kept;
}

enum plim_status plim_top_model_update(struct plim_top_model *m, const struct plim_state *state,
                                       struct plim_err *err)
{
    m->state = state;
    m->now_ns = state->now->mono_ns;
    m->steps++;
    m->devices.n = m->processes.n = 0;
    drop_trends(m);
    plim_vec_foreach (use, &state->now->sample.uses) {
        PLIM_TRY(add_process(m, use, err));
    }
    for (uint32_t i = 0; i < state->now->sample.devices.n; i++) {
        PLIM_TRY(add_device(m, i, err));
    }
    plim_vec_foreach (e, &state->now->engines) {
        PLIM_TRY(add_engine(m, e, err));
    }
    drop_engines(m);
    return PLIM_OK;
}

void plim_top_model_fini(struct plim_top_model *m)
{
    plim_vec_fini(&m->devices);
    plim_vec_fini(&m->processes);
    plim_vec_fini(&m->trends);
    plim_vec_fini(&m->engines);
}

bool plim_top_rate(const struct plim_top_model *m, const struct plim_engine_now *e,
                   enum plim_engine_figure figure, double *out)
{
    plim_vec_foreach (pair, &m->engines) {
        const struct plim_engine_now *a = &pair->older, *b = &pair->newer;
        bool both = (a->valid & b->valid & UINT64_C(1) << figure) != 0;
        if (same_engine(b, e) && both && b->told_ns > a->told_ns &&
            b->figure[figure] >= a->figure[figure]) {
            *out =
                (b->figure[figure] - a->figure[figure]) * 1e9 / (double)(b->told_ns - a->told_ns);
            return true;
        }
    }
    return false;
}
