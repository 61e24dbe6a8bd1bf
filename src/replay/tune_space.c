/* SPDX-License-Identifier: Apache-2.0 */
/* The candidates: seeds, search, and the one-variable view. See tune.h. */

#include "replay/tune_int.h"

#include "base/bytes.h"

#include <stdio.h>

#define ROUNDS 3 /* of the search, each with smaller steps */

static const uint32_t splits[] = {20, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048};
static const uint32_t roundups[] = {2, 4, 8, 16, 32, 64};
static const uint32_t gcs[] = {50, 60, 70, 80, 90};
static const uint32_t larges[] = {12, 32, 64, 128, 256, 512};
static const uint32_t non_splits[] = {32, 64, 128, 256, 512};
static const uint32_t on[] = {1};

static const struct {
    const char *key;
    const uint32_t *values;
    size_t n;
} ranges[PLIM_KNOB_COUNT] = {
    [PLIM_KNOB_EXPANDABLE] = {"expandable_segments", on, PLIM_COUNT_OF(on)},
    [PLIM_KNOB_MAX_SPLIT] = {"max_split_size_mb", splits, PLIM_COUNT_OF(splits)},
    [PLIM_KNOB_ROUNDUP] = {"roundup_power2_divisions", roundups, PLIM_COUNT_OF(roundups)},
    [PLIM_KNOB_GC] = {"garbage_collection_threshold", gcs, PLIM_COUNT_OF(gcs)},
    [PLIM_KNOB_LARGE_SEGMENT] = {"large_segment_size_mb", larges, PLIM_COUNT_OF(larges)},
    [PLIM_KNOB_NON_SPLIT] = {"max_non_split_rounding_mb", non_splits, PLIM_COUNT_OF(non_splits)},
};

static const char *value_text(enum plim_knob knob, uint32_t value, struct plim_arena *arena)
{
    switch (knob) {
    case PLIM_KNOB_EXPANDABLE:
        return value ? "True" : "False";
    case PLIM_KNOB_GC:
        return plim_arena_sayf(arena, "0.%02u", value);
    default:
        return plim_arena_sayf(arena, "%u", value);
    }
}

const char *plim__knobs_text(const struct plim_knobs *knobs, struct plim_arena *arena)
{
    const char *text = "";
    for (int k = 0; k < PLIM_KNOB_COUNT; k++) {
        if (knobs->value[k]) {
            text = plim_arena_sayf(arena, "%s%s%s:%s", text, text[0] ? "," : "", ranges[k].key,
                                   value_text((enum plim_knob)k, knobs->value[k], arena));
        }
    }
    return text;
}

/* ---- seeds ---------------------------------------------------------------------------------------- */

/* One knob over its range on top of `base`. */
static enum plim_status over_range(struct plim__tuner *t, struct plim_knobs base,
                                   enum plim_knob knob, struct plim_err *err)
{
    for (size_t i = 0; i < ranges[knob].n; i++) {
        base.value[knob] = ranges[knob].values[i];
        PLIM_TRY(plim__tune_add(t, base, err));
    }
    return PLIM_OK;
}

static struct plim_knobs with(enum plim_knob knob, uint32_t value)
{
    struct plim_knobs k = {{0}};
    k.value[knob] = value;
    return k;
}

enum plim_status plim__tune_seeds(struct plim__tuner *t, struct plim_err *err)
{
    static const uint32_t mixed_splits[] = {64, 128, 256, 512};
    static const uint32_t mixed_roundups[] = {4, 8, 16};
    struct plim_knobs none = {{0}};
    PLIM_TRY(plim__tune_add(t, none, err));
    for (int k = 0; k < PLIM_KNOB_COUNT; k++) {
        PLIM_TRY(over_range(t, none, (enum plim_knob)k, err));
    }
    struct plim_knobs expandable = with(PLIM_KNOB_EXPANDABLE, 1);
    PLIM_TRY(over_range(t, expandable, PLIM_KNOB_ROUNDUP, err));
    PLIM_TRY(over_range(t, expandable, PLIM_KNOB_LARGE_SEGMENT, err));
    for (size_t i = 0; i < PLIM_COUNT_OF(mixed_splits); i++) {
        struct plim_knobs k = with(PLIM_KNOB_MAX_SPLIT, mixed_splits[i]);
        for (size_t j = 0; j < PLIM_COUNT_OF(mixed_roundups); j++) {
            k.value[PLIM_KNOB_ROUNDUP] = mixed_roundups[j];
            PLIM_TRY(plim__tune_add(t, k, err));
        }
        k = with(PLIM_KNOB_MAX_SPLIT, mixed_splits[i]);
        PLIM_TRY(over_range(t, k, PLIM_KNOB_NON_SPLIT, err));
        k.value[PLIM_KNOB_LARGE_SEGMENT] = 64;
        PLIM_TRY(plim__tune_add(t, k, err));
    }
    return PLIM_OK;
}

/* ---- search --------------------------------------------------------------------------------------- */

/* The best run with expandable segments, or without; PLIM_NO_ID when there is none. */
static uint32_t best_of(const struct plim__tuner *t, bool expandable)
{
    uint32_t best = PLIM_NO_ID;
    for (uint32_t i = 0; i < t->tune->runs.n; i++) {
        const struct plim_tune_run *r = &t->tune->runs.items[i];
        if (r->recorded || (r->knobs.value[PLIM_KNOB_EXPANDABLE] != 0) != expandable) {
            continue;
        }
        if (best == PLIM_NO_ID || plim__tune_compare(r, &t->tune->runs.items[best]) < 0) {
            best = i;
        }
    }
    return best;
}

static uint32_t stepped(enum plim_knob knob, uint32_t value, int round, bool up)
{
    static const double factors[ROUNDS] = {1.5, 1.2, 1.07};
    double f = factors[round];
    if (knob == PLIM_KNOB_ROUNDUP) {
        return up ? value * 2 : value / 2; /* a power of two */
    }
    if (knob == PLIM_KNOB_GC) {
        uint32_t step = 8u >> round;
        return up ? (value + step < 100 ? value + step : 0) : (value > step ? value - step : 0);
    }
    double next = up ? (double)value * f : (double)value / f;
    uint32_t rounded = (uint32_t)(next + 0.5);
    return rounded == value ? (up ? value + 1 : value - 1) : rounded;
}

/* The neighbours of a run: each knob it uses a step up, a step down and left out; each other one added
 * at a middle value. */
static enum plim_status neighbours(struct plim__tuner *t, struct plim_knobs at, int round,
                                   struct plim_err *err)
{
    for (int k = 0; k < PLIM_KNOB_COUNT; k++) {
        enum plim_knob knob = (enum plim_knob)k;
        struct plim_knobs next = at;
        if (knob == PLIM_KNOB_EXPANDABLE) {
            continue;
        }
        if (at.value[k] == 0) {
            next.value[k] = ranges[k].values[ranges[k].n / 2];
            PLIM_TRY(round == 0 ? plim__tune_add(t, next, err) : PLIM_OK);
            continue;
        }
        for (int way = 0; way < 3; way++) {
            next.value[k] = way == 2 ? 0 : stepped(knob, at.value[k], round, way == 0);
            PLIM_TRY(plim__tune_add(t, next, err));
        }
    }
    return PLIM_OK;
}

enum plim_status plim__tune_search(struct plim__tuner *t, struct plim_err *err)
{
    t->refining = true;
    for (int round = 0; round < ROUNDS; round++) {
        size_t from = t->tune->runs.n;
        for (int family = 0; family < 2; family++) {
            uint32_t best = best_of(t, family == 1);
            if (best != PLIM_NO_ID) {
                PLIM_TRY(neighbours(t, t->tune->runs.items[best].knobs, round, err));
            }
        }
        plim__tune_point(t->tune);
        PLIM_TRY(plim__tune_run(t, from, err));
    }
    return PLIM_OK;
}

/* ---- one variable ---------------------------------------------------------------------------------- */

/* `conf` without the pair of that key. Lists in brackets belong to their key. */
static const char *without_key(const char *conf, const char *key, struct plim_arena *arena)
{
    const char *kept = "";
    size_t n = strlen(key);
    while (*conf) {
        int depth = 0;
        size_t len = 0;
        while (conf[len] && !(conf[len] == ',' && depth == 0)) {
            depth += conf[len] == '[' ? 1 : conf[len] == ']' ? -1 : 0;
            len++;
        }
        struct plim_str pair = plim_str_trim((struct plim_str){conf, len});
        if (pair.n > 0 && !(pair.n > n && memcmp(pair.p, key, n) == 0 && pair.p[n] == ':')) {
            kept = plim_arena_sayf(arena, "%s%s%.*s", kept, kept[0] ? "," : "", PLIM_STR_ARG(pair));
        }
        conf += len + (conf[len] == ',' ? 1 : 0);
    }
    return kept;
}

static const char *base_text(const struct plim__tuner *t)
{
    if (t->options->base) {
        return t->options->base;
    }
    const struct plim_snapshot *s = t->q->snapshot;
    return plim_arena_sayf(&t->tune->arena, "%.*s",
                           PLIM_STR_ARG(plim_intern_str(&s->strings, s->settings.conf)));
}

/* Common cards, GiB as their driver reports them, rounded down. */
static const uint32_t cards[] = {4,  6,  8,  10, 11, 12, 15, 16,  20,  22, 24,
                                 32, 40, 44, 47, 64, 79, 94, 139, 178, 267};

static enum plim_status vary_device(struct plim__tuner *t, struct plim_err *err)
{
    const char *base = base_text(t);
    PLIM_TRY(plim__tune_add_text(t, base, false, err));
    struct plim_tune_run first = t->tune->runs.items[0];
    t->tune->runs.n = 0;
    for (size_t i = 0; i < PLIM_COUNT_OF(cards); i++) {
        struct plim_tune_run run = first;
        run.setup.capacity = cards[i] * PLIM_GIB;
        if (run.setup.capacity > run.setup.external) {
            PLIM_TRY(plim_vec_push(&t->tune->runs, err, run));
        }
    }
    return PLIM_OK;
}

enum plim_status plim__tune_vary(struct plim__tuner *t, struct plim_err *err)
{
    struct plim_arena *arena = &t->tune->arena;
    if (strcmp(t->options->vary, "device-memory") == 0) {
        return vary_device(t, err);
    }
    for (int k = 0; k < PLIM_KNOB_COUNT; k++) {
        if (strcmp(ranges[k].key, t->options->vary) != 0) {
            continue;
        }
        const char *base = without_key(base_text(t), ranges[k].key, arena);
        PLIM_TRY(plim__tune_add_text(t, base, false, err));
        for (size_t i = 0; i < ranges[k].n; i++) {
            const char *text =
                plim_arena_sayf(arena, "%s%s%s:%s", base, base[0] ? "," : "", ranges[k].key,
                                value_text((enum plim_knob)k, ranges[k].values[i], arena));
            PLIM_TRY(plim__tune_add_text(t, text, false, err));
            t->tune->runs.items[t->tune->runs.n - 1].knobs.value[k] = ranges[k].values[i];
        }
        return PLIM_OK;
    }
    /* The settings parser knows the nearest key; it says so. */
    struct plim_conf conf;
    plim_conf_init(&conf, t->options->version);
    const char *text = plim_arena_sayf(arena, "%s:1", t->options->vary);
    PLIM_TRY(plim_conf_parse(&conf, plim_str_from(text), err));
    return plim__fail(err, PLIM_E_USAGE, "'%s' changes nothing that a replay could show",
                      t->options->vary);
}
