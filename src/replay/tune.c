/* SPDX-License-Identifier: Apache-2.0 */
/* The search as a whole: candidates in, ranking and one recommendation out. */

#include "replay/tune_int.h"

#include "base/bytes.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

#define MOST_DEFAULT  160
#define FINALISTS     8
#define OF_FAMILY     4   /* of them with expandable segments, and as many without */
#define STALL_NOTICED 2e8 /* ns over the whole trace */
#define NEAR_THE_END                                                                               \
    16u /* allocations: a failure so near the end of a recording is where it ends */
#define FRESH                                                                                      \
    " What failed in the recording is served when the same requests begin with a fresh heap: "     \
    "what "                                                                                        \
    "led to it lies before the recording, and only the differences between settings count."
#define UNSHOWN                                                                                    \
    " What failed in the recording is served when its own settings are replayed: something that "  \
    "it does not show limited the run, such as a memory cap. Give what the process may have with " \
    "--device-memory; until then only the differences between settings count."

/* ---- candidates ---------------------------------------------------------------------------------- */

enum plim_status plim__tune_add_text(struct plim__tuner *t, const char *conf, bool recorded,
                                     struct plim_err *err)
{
    struct plim_tune_run run = {.conf = conf, .recorded = recorded};
    if (recorded && t->q->conf_known) {
        run.parsed = t->q->conf;
    } else {
        plim_conf_init(&run.parsed, t->options->version);
        PLIM_TRY(plim_conf_parse(&run.parsed, plim_str_from(conf), err));
    }
    run.setup = (struct plim_replay_setup){
        .capacity = t->options->capacity,
        .external = t->options->external,
        .scale = t->options->scale,
        .start = PLIM_START_ANEW,
    };
    uint64_t key = plim_hash_bytes(conf, strlen(conf)) >> 1;
    PLIM_TRY(plim_map_put(&t->seen, key, 1, err));
    return plim_vec_push(&t->tune->runs, err, run);
}

enum plim_status plim__tune_add(struct plim__tuner *t, struct plim_knobs knobs,
                                struct plim_err *err)
{
    struct plim_conf conf;
    const char *text = plim__knobs_text(&knobs, &t->tune->arena);
    PLIM_TRY(plim_arena_status(&t->tune->arena, err));
    if (t->tune->runs.n >= t->most || plim__tune_excluded(t, &knobs) ||
        plim_map_get(&t->seen, plim_hash_bytes(text, strlen(text)) >> 1)) {
        return PLIM_OK;
    }
    plim_conf_init(&conf, t->options->version);
    if (plim_conf_parse(&conf, plim_str_from(text), NULL) != PLIM_OK) {
        return PLIM_OK; /* not in this release */
    }
    /* A cap of the recording stays in force. */
    PLIM_TRY(plim__tune_add_text(t, text, false, err));
    struct plim_tune_run *run = &t->tune->runs.items[t->tune->runs.n - 1];
    run->parsed.memory_fraction = t->q->conf.memory_fraction;
    run->knobs = knobs;
    run->refined = t->refining;
    return PLIM_OK;
}

/* ---- order ---------------------------------------------------------------------------------------- */

static unsigned knobs_used(const struct plim_tune_run *r)
{
    unsigned n = 0;
    for (int k = 0; k < PLIM_KNOB_COUNT; k++) {
        n += r->knobs.value[k] != 0;
    }
    return n;
}

static int order_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Doublings beyond what is noticed: smaller differences of an estimate mean nothing. */
static int stall_class(const struct plim_tune_run *r)
{
    return (int)log2(1.0 + (double)r->result.stall_ns / STALL_NOTICED);
}

/* Bytes above what is needed at least: what a setting costs. Differences below 1/64 do not count. */
static uint64_t cost_of(const struct plim_tune_run *r)
{
    uint64_t peak = r->need ? r->need : r->result.peak.reserved;
    uint64_t unit = plim_max_u64(r->result.peak.requested / 64, 1);
    if (!r->need && r->result.least_headroom != UINT64_MAX) {
        return plim_sub_sat(r->setup.capacity, r->result.least_headroom) / unit;
    }
    return peak / unit;
}

int plim__tune_compare(const struct plim_tune_run *a, const struct plim_tune_run *b)
{
    bool fits_a = plim_tune_run_fits(a);
    bool fits_b = plim_tune_run_fits(b);
    int order = (int)fits_b - (int)fits_a;
    if (order == 0 && !fits_a) {
        order = order_u64(b->result.allocs, a->result.allocs);
    }
    if (order == 0 && fits_a) { /* first those of which the need is known */
        order = (int)(a->need == 0) - (int)(b->need == 0);
    }
    if (order == 0) {
        order = order_u64(cost_of(a), cost_of(b));
    }
    if (order == 0) {
        order = stall_class(a) - stall_class(b);
    }
    if (order == 0) {
        order = order_u64(knobs_used(a), knobs_used(b));
    }
    if (order == 0) { /* leaves more to others */
        uint64_t unit = plim_max_u64(a->result.peak.requested / 64, 1);
        order = order_u64(a->result.peak.reserved / unit, b->result.peak.reserved / unit);
    }
    if (order == 0) { /* a round value before a refined one */
        order = (int)a->refined - (int)b->refined;
    }
    if (order == 0) {
        order = order_u64(a->result.stall_ns, b->result.stall_ns);
    }
    if (order == 0) {
        order = strcmp(a->conf, b->conf);
    }
    return order ? order : (int)b->recorded - (int)a->recorded;
}

static int compare_runs(const void *a, const void *b)
{
    return plim__tune_compare(a, b);
}

void plim__tune_point(struct plim_tune *tune)
{
    plim_vec_foreach (run, &tune->runs) {
        run->setup.conf = &run->parsed;
    }
}

static void rank(struct plim_tune *tune)
{
    if (tune->runs.n > 1) {
        qsort(tune->runs.items, tune->runs.n, sizeof tune->runs.items[0], compare_runs);
    }
    plim__tune_point(tune);
    for (uint32_t i = 0; i < tune->runs.n; i++) {
        tune->recorded = tune->runs.items[i].recorded ? i : tune->recorded;
    }
}

/* ---- the recommendation ---------------------------------------------------------------------------- */

static const char *bytes_text(struct plim_tune *tune, uint64_t bytes)
{
    char buf[PLIM_BYTES_TEXT];
    return plim_arena_sayf(&tune->arena, "%s", plim_bytes_format(buf, bytes));
}

static const char *name_of(const struct plim_tune_run *r)
{
    return r->conf[0] ? r->conf : "the default settings";
}

static void say_no_setting_helps(struct plim__tuner *t)
{
    struct plim_tune *tune = t->tune;
    uint64_t room = plim_sub_sat(t->options->capacity, t->options->external);
    const struct plim_tune_run *best = &tune->runs.items[0];
    if (tune->bound.live > room) {
        tune->summary = plim_arena_sayf(
            &tune->arena,
            "No setting helps: %s are wanted at the same time, and the process can have %s. No "
            "allocator could serve this.",
            bytes_text(tune, tune->bound.live), bytes_text(tune, room));
        return;
    }
    tune->summary = plim_arena_sayf(
        &tune->arena,
        "No setting helps: the best (%s) fails too, at allocation %" PRIu64 " of %" PRIu64
        ". At most %s are wanted at the same time, of %s: an allocator that knew the lifetimes "
        "would need %s%s.",
        name_of(best), best->result.allocs + 1, t->q->allocs, bytes_text(tune, tune->bound.live),
        bytes_text(tune, room), bytes_text(tune, tune->bound.packed_all),
        tune->bound.lanes > 1
            ? plim_arena_sayf(&tune->arena, ", and %s with memory bound to its streams and pools",
                              bytes_text(tune, tune->bound.packed))
            : "");
}

/*
 * Worth a change: it fits where the present settings do not, or needs 2 % less, or does without retries.
 * shown: the replay fails where the recording did; else its retries say nothing.
 */
static bool worth_it(const struct plim_tune_run *now, const struct plim_tune_run *best, bool shown)
{
    if (!plim_tune_run_fits(now)) {
        return plim_tune_run_fits(best);
    }
    uint64_t need_now = now->need ? now->need : now->result.peak.reserved;
    uint64_t need_best = best->need ? best->need : best->result.peak.reserved;
    if (need_best + need_now / 50 < need_now) {
        return true;
    }
    return shown && now->result.num_alloc_retries > 0 && best->result.num_alloc_retries == 0 &&
           need_best <= need_now;
}

/* Why a replay of the recorded settings that fits does not say much, or nothing. */
static const char *caveat(const struct plim__tuner *t)
{
    const struct plim_requests *q = t->q;
    if (!q->recorded_failure || !plim_tune_run_fits(&t->tune->runs.items[t->tune->recorded])) {
        return "";
    }
    uint64_t room = plim_sub_sat(t->options->capacity, t->options->external);
    bool same_room = room > 0 && room <= q->recorded_capacity;
    return t->tune->fresh_start_fits                     ? FRESH
           : same_room && q->doubts.caught_failures == 0 ? UNSHOWN
                                                         : "";
}

/*
 * A recording that ends where the present settings fail does not show what the program would have asked for
 * next. Little room above what is wanted at once says that no setting will carry it far.
 */
static const char *what_comes_next(struct plim__tuner *t, const struct plim_tune_run *now)
{
    struct plim_tune *tune = t->tune;
    uint64_t room = plim_sub_sat(t->options->capacity, t->options->external);
    if (plim_tune_run_fits(now) || now->result.allocs + NEAR_THE_END < t->q->allocs) {
        return "";
    }
    uint64_t left = plim_sub_sat(room, tune->bound.live);
    if (room == 0 || left > room / 10) {
        return " What the program would have asked for next is not in the recording.";
    }
    return plim_arena_sayf(&tune->arena,
                           " What the program would have asked for next is not in the recording, "
                           "and %s of %s are wanted at the same time already: %s are left for it, "
                           "under any settings.",
                           bytes_text(tune, tune->bound.live), bytes_text(tune, room),
                           bytes_text(tune, left));
}

static void say_recommendation(struct plim__tuner *t, const struct plim_tune_run *now,
                               const struct plim_tune_run *best)
{
    struct plim_tune *tune = t->tune;
    struct plim_arena *a = &tune->arena;
    const char *before =
        plim_tune_run_fits(now)
            ? plim_arena_sayf(a, "%s would need %s", name_of(now),
                              bytes_text(tune, now->need ? now->need : now->result.peak.reserved))
            : plim_arena_sayf(a, "with %s allocation %" PRIu64 " of %" PRIu64 " fails",
                              name_of(now), now->result.allocs + 1, t->q->allocs);
    tune->reason = plim_arena_sayf(
        a,
        "It serves every request and would do so with %s; %s. Peak reserved %s, %" PRIu64
        " retries, %.0f ms of stall (now %" PRIu64 " and %.0f ms).%s",
        bytes_text(tune, best->need ? best->need : best->result.peak.reserved), before,
        bytes_text(tune, best->result.peak.reserved), best->result.num_alloc_retries,
        (double)best->result.stall_ns / 1e6, now->result.num_alloc_retries,
        (double)now->result.stall_ns / 1e6, what_comes_next(t, now));
    tune->risk = plim__tune_risk(&best->knobs);
    tune->applies_to = plim__tune_applies_to(&best->knobs);
    tune->summary =
        plim_arena_sayf(a, "Set %s=%s.%s",
                        plim_torch_at_least(t->options->version, 2, 9) ? "PYTORCH_ALLOC_CONF"
                                                                       : "PYTORCH_CUDA_ALLOC_CONF",
                        best->conf[0] ? best->conf : "''", caveat(t));
}

/* No other setting is worth it. After a failure that is no reassurance: what is said is how little it would change. */
static void say_keep(struct plim__tuner *t, const struct plim_tune_run *now)
{
    struct plim_tune *tune = t->tune;
    struct plim_arena *a = &tune->arena;
    const char *doubt = caveat(t);
    uint64_t room = plim_sub_sat(t->options->capacity, t->options->external);
    if (doubt[0] == '\0') {
        tune->summary = plim_arena_sayf(
            a, "Keep %s: every request is served, and no other setting is worth a change.",
            name_of(now));
        return;
    }
    tune->summary = plim_arena_sayf(
        a,
        "No setting helps much: with %s the requests of the recording need %s%s, of which at most "
        "%s are wanted at the same time, and no other needs noticeably less.%s",
        name_of(now), bytes_text(tune, now->need ? now->need : now->result.peak.reserved),
        room > 0 ? plim_arena_sayf(a, " of %s", bytes_text(tune, room)) : "",
        bytes_text(tune, tune->bound.live), doubt);
}

static void recommend(struct plim__tuner *t)
{
    struct plim_tune *tune = t->tune;
    const struct plim_tune_run *best = &tune->runs.items[0];
    const struct plim_tune_run *now = &tune->runs.items[tune->recorded];
    tune->needed = !plim_tune_run_fits(now) || now->result.num_alloc_retries > 0;
    tune->fresh_start_fits = !t->q->complete && plim_tune_run_fits(now);
    if (!plim_tune_run_fits(best)) {
        say_no_setting_helps(t);
        return;
    }
    if (best == now || !worth_it(now, best, caveat(t)[0] == '\0')) {
        say_keep(t, now);
        return;
    }
    tune->recommended = 0;
    say_recommendation(t, now, best);
}

static bool alike(const struct plim_tune_run *a, const struct plim_tune_run *b)
{
    return a->result.peak.reserved == b->result.peak.reserved &&
           a->result.driver_calls == b->result.driver_calls &&
           a->result.num_alloc_retries == b->result.num_alloc_retries;
}

/* Is run i worth a closer look: the present settings, or among the best of its family and not a copy? */
static bool is_finalist(const struct plim_tune *tune, uint32_t i, const uint32_t *runs, size_t n)
{
    const struct plim_tune_run *r = &tune->runs.items[i];
    unsigned family = 0;
    for (size_t k = 0; k < n; k++) {
        const struct plim_tune_run *f = &tune->runs.items[runs[k]];
        family += (f->parsed.expandable == r->parsed.expandable);
        if (alike(f, r) && !r->recorded) {
            return false;
        }
    }
    return r->recorded || (n < FINALISTS && family < OF_FAMILY);
}

/* The few best and the present settings, by how little memory they could do with. */
static enum plim_status finals(struct plim__tuner *t, struct plim_err *err)
{
    uint32_t runs[FINALISTS + 1];
    size_t n = 0;
    for (uint32_t i = 0; i < t->tune->runs.n && n <= FINALISTS; i++) {
        if (plim_tune_run_fits(&t->tune->runs.items[i]) && is_finalist(t->tune, i, runs, n)) {
            runs[n++] = i;
        }
    }
    return plim__tune_needs(t, runs, n, err);
}

/* ---- the whole ------------------------------------------------------------------------------------- */

static enum plim_status search_all(struct plim__tuner *t, struct plim_err *err)
{
    struct plim_tune *tune = t->tune;
    const struct plim_snapshot *s = t->q->snapshot;
    const char *recorded = plim_arena_sayf(
        &tune->arena, "%.*s", PLIM_STR_ARG(plim_intern_str(&s->strings, s->settings.conf)));
    PLIM_TRY(plim__tune_add_text(t, t->q->conf_known ? recorded : "", true, err));
    PLIM_TRY(plim__tune_seeds(t, err));
    plim__tune_point(tune);
    PLIM_TRY(plim__tune_run(t, 0, err));
    PLIM_TRY(plim__tune_search(t, err));
    PLIM_TRY(plim__tune_list_exclusions(t, err));
    rank(tune);
    PLIM_TRY(finals(t, err));
    rank(tune);
    recommend(t);
    return PLIM_OK;
}

static void say_vary(struct plim__tuner *t)
{
    struct plim_tune *tune = t->tune;
    bool device = strcmp(t->options->vary, "device-memory") == 0;
    for (uint32_t i = 0; i < tune->runs.n; i++) {
        const struct plim_tune_run *r = &tune->runs.items[i];
        bool better = tune->recommended == PLIM_NO_ID ||
                      (!device && plim__tune_compare(r, &tune->runs.items[tune->recommended]) < 0);
        if (plim_tune_run_fits(r) && better) {
            tune->recommended = i;
        }
    }
    if (tune->recommended == PLIM_NO_ID) {
        tune->summary = device ? "It fits none of these devices." : "None of these values fits.";
        return;
    }
    const struct plim_tune_run *best = &tune->runs.items[tune->recommended];
    tune->summary =
        device
            ? plim_arena_sayf(&tune->arena,
                              "The smallest device that fits has %s; the least that would do "
                              "is %s.",
                              bytes_text(tune, best->setup.capacity), bytes_text(tune, best->need))
            : plim_arena_sayf(&tune->arena, "Best of these: %s.", name_of(best));
}

/* Of the devices that fit, the three smallest tell enough. */
static void cut_devices(struct plim__tuner *t)
{
    size_t fit = 0, i = 0;
    if (strcmp(t->options->vary, "device-memory") != 0) {
        return;
    }
    for (; i < t->tune->runs.n && fit < 3; i++) {
        fit += plim_tune_run_fits(&t->tune->runs.items[i]);
    }
    t->tune->runs.n = i;
}

static enum plim_status vary_one(struct plim__tuner *t, struct plim_err *err)
{
    PLIM_TRY(plim__tune_vary(t, err));
    PLIM_TRY(plim_arena_status(&t->tune->arena, err));
    plim__tune_point(t->tune);
    PLIM_TRY(plim__tune_run(t, 0, err));
    for (uint32_t i = 0; i < t->tune->runs.n; i++) {
        if (plim_tune_run_fits(&t->tune->runs.items[i])) {
            PLIM_TRY(plim__tune_needs(t, &i, 1, err));
            if (strcmp(t->options->vary, "device-memory") == 0) {
                break; /* the smallest that fits is enough */
            }
        }
    }
    cut_devices(t);
    say_vary(t);
    return PLIM_OK;
}

static unsigned thread_count(unsigned wanted)
{
    long have = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned n = wanted ? wanted : (unsigned)(have < 1 ? 1 : have > 8 ? 8 : have);
    return n > 16 ? 16 : n;
}

/* What the allocator that moves pages would do, on the same device. */
static enum plim_status try_moving(struct plim__tuner *t, struct plim_err *err)
{
    static const struct plim_moving_options stitch = {0};
    struct plim_tune_run *run = &t->tune->moving;
    *run = (struct plim_tune_run){.conf = "", .parsed = t->q->conf};
    run->setup = (struct plim_replay_setup){
        .conf = &t->q->conf,
        .capacity = t->options->capacity,
        .external = t->options->external,
        .scale = t->options->scale,
        .start = PLIM_START_ANEW,
        .moving = t->options->moving ? t->options->moving : &stitch,
    };
    PLIM_TRY(plim_replay(t->q, &run->setup, &run->result, err));
    t->tune->has_moving = true;
    return PLIM_OK;
}

enum plim_status plim_tune(const struct plim_requests *requests,
                           const struct plim_tune_options *options, struct plim_tune *out,
                           struct plim_err *err)
{
    struct plim_tune tune = {.recorded = PLIM_NO_ID, .recommended = PLIM_NO_ID};
    struct plim__tuner t = {
        .q = requests,
        .options = options,
        .tune = &tune,
        .has_cap = requests->conf.memory_fraction < 1.0,
        .threads = thread_count(options->threads),
        .most = options->most ? options->most : MOST_DEFAULT,
    };
    plim_arena_init(&tune.arena, 0);
    enum plim_status st = plim_bound_of(requests, options->scale, &tune.bound, err);
    if (st == PLIM_OK) {
        st = options->vary ? vary_one(&t, err) : search_all(&t, err);
    }
    if (st == PLIM_OK && !options->vary) {
        st = try_moving(&t, err);
    }
    if (st == PLIM_OK) {
        st = plim_arena_status(&tune.arena, err);
    }
    plim_map_fini(&t.seen);
    if (st == PLIM_OK) {
        *out = tune;
    } else {
        plim_tune_fini(&tune);
    }
    return st;
}

void plim_tune_fini(struct plim_tune *tune)
{
    plim_vec_fini(&tune->runs);
    plim_vec_fini(&tune->excluded);
    plim_arena_fini(&tune->arena);
}
