/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Queries. A stretch of time is read from the coarsest level that still gives eight of its steps to a bin; where that
 * level is not packed yet, from finer ones and at last from the rows of the tail; where it is gone already, from
 * coarser ones. Pieces are joined in bins, so that it does not matter to a reader where they came from.
 */

#include "store/store_int.h"

#include "base/num.h"

#include <stdlib.h>
#include <sys/stat.h>

#define POINTS_DEFAULT 1000u
#define POINTS_MAX     100000u
#define STEPS_PER_BIN  8

struct query {
    struct plim_store *store;
    uint32_t subject;
    uint32_t figure;
    int64_t from, to; /* wall ms, from a multiple of step */
    int64_t step;
    size_t level;
    int64_t shift;                    /* of the era being read */
    int64_t ledger_from, ledger_to;   /* of the piece being read */
    PLIM_VEC(struct plim_cell) cells; /* one for each bin */
    struct plim__tail tail;
};

/* ---- readers see what a writer does meanwhile ---- */

/* The file may have been set aside and made anew. */
static enum plim_status reopen_when_replaced(struct plim_store *store, struct plim_err *err)
{
    struct stat info;
    if (store->read_only &&
        (store->db == NULL || (stat(store->path, &info) == 0 && info.st_ino != store->inode))) {
        plim__database_close(store);
        return plim__database_open(store, err);
    }
    return store->db != NULL ? PLIM_OK : plim__database_open(store, err);
}

/* One view of the file for several statements. */
static enum plim_status begin_reading(struct plim_store *store, struct plim_err *err)
{
    PLIM_TRY(reopen_when_replaced(store, err));
    if (!store->read_only && store->stale) {
        PLIM_TRY(plim__recall(
            store, err)); /* which may have to mend the tail: not in what is rolled back */
    }
    PLIM_TRY(plim__run(store, PLIM__SQL_BEGIN, 0, 0, 0, err));
    return store->read_only ? plim__recall(store, err) : PLIM_OK;
}

enum plim_status plim__reading(struct plim_store *store,
                               enum plim_status (*body)(void *self, struct plim_err *err),
                               void *self, struct plim_err *err)
{
    enum plim_status st = begin_reading(store, err);
    st = st == PLIM_OK ? body(self, err) : st;
    plim__rollback(store);
    return st;
}

/* ---- pieces ---- */

static void take_cell(struct query *q, int64_t time, const struct plim_cell *cell)
{
    int64_t wall = time - q->shift;
    if (time >= q->ledger_from && time < q->ledger_to && wall >= q->from) {
        size_t bin = (size_t)((wall - q->from) / q->step);
        if (bin < q->cells.n) {
            plim__cell_join(&q->cells.items[bin], cell);
        }
    }
}

static enum plim_status take_bytes(struct query *q, struct plim_str bytes, int64_t start,
                                   struct plim_err *err)
{
    struct plim__chunk *chunk = &q->store->chunk;
    uint32_t figure = 0;
    struct plim_str body;
    PLIM_TRY(plim__chunk_open(chunk, bytes, start, err));
    PLIM_TRY(plim_vec_reserve(&q->store->cells, chunk->rows, err));
    while (plim__chunk_next(chunk, &figure, &body) && figure != q->figure) {
    }
    if (figure != q->figure) {
        return PLIM_OK;
    }
    if (!plim__chunk_cells(chunk, body, q->store->cells.items)) {
        return plim__fail(err, PLIM_E_DATA, "a piece of the history is damaged");
    }
    for (size_t i = 0; i < chunk->rows; i++) {
        if (q->store->cells.items[i].n > 0) {
            take_cell(q, chunk->times.items[i], &q->store->cells.items[i]);
        }
    }
    return PLIM_OK;
}

/* One chunk; a damaged one is passed over and counted. */
static enum plim_status take_chunk(struct query *q, int64_t step, int64_t start, bool *found,
                                   struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    sqlite3_stmt *stmt = plim__sql(q->store, PLIM__SQL_CHUNK);
    (void)sqlite3_bind_int64(stmt, 1, step);
    (void)sqlite3_bind_int64(stmt, 2, start);
    (void)sqlite3_bind_int64(stmt, 3, q->subject);
    *found = plim__step(q->store, stmt, &st, err);
    if (*found) {
        st = take_bytes(q, plim__column_bytes(stmt, 0), start, err);
        (void)sqlite3_reset(stmt);
    }
    q->store->state.unreadable += st == PLIM_E_DATA;
    return st == PLIM_E_DATA ? PLIM_OK : st;
}

/* Where the subject has no chunk, go on where anybody has one: a stretch of nothing may be long. */
static enum plim_status take_level(struct query *q, const struct plim__level *level, int64_t from,
                                   int64_t to, struct plim_err *err)
{
    q->ledger_from = plim__floor_to(from, level->step);
    q->ledger_to = to;
    for (int64_t start = plim__floor_to(from, level->span), next; start < to; start = next) {
        bool found, more;
        next = start + level->span;
        PLIM_TRY(take_chunk(q, level->step, start, &found, err));
        if (!found) {
            int64_t there = to;
            PLIM_TRY(plim__ask(q->store, PLIM__SQL_NEXT_CHUNK, PLIM__ARGS(level->step, next, 0),
                               &there, &more, err));
            next = more ? plim__floor_to(there, level->span) : to;
        }
    }
    return PLIM_OK;
}

static void take_row(void *self, const struct plim__tail *tail)
{
    struct query *q = self;
    uint64_t *at = plim_map_get(&tail->index, plim__slot_key(q->subject, (uint16_t)q->figure));
    if (at != NULL && tail->slots.items[*at].present) {
        struct plim_cell cell = {0};
        plim__cell_point(&cell, tail->slots.items[*at].value);
        take_cell(q, tail->last, &cell);
    }
}

static enum plim_status take_tail(struct query *q, int64_t from, int64_t to, struct plim_err *err)
{
    int64_t bad, next;
    q->ledger_from = from;
    q->ledger_to = to;
    return plim__rows_scan(q->store, &q->tail, take_row, q, &bad, &next, err);
}

/* The level for time t and where its stretch ends; n_levels: the tail. */
static size_t choose_level(const struct query *q, const int64_t *starts, int64_t t, int64_t *end)
{
    const struct plim_store *store = q->store;
    for (size_t k = q->level; k < store->n_levels;
         k++) { /* as wanted, or coarser where it is gone */
        if (starts[k] <= t && t < store->level[k].done) {
            *end = store->level[k].done;
            for (size_t finer = q->level; finer < k; finer++) {
                *end = starts[finer] > t && starts[finer] < *end ? starts[finer] : *end;
            }
            return k;
        }
    }
    for (size_t k = q->level; k-- > 0;) { /* not packed yet */
        if (starts[k] <= t && t < store->level[k].done) {
            *end = store->level[k].done;
            return k;
        }
    }
    *end = INT64_MAX;
    for (size_t k = 0; k < store->n_levels; k++) { /* nothing here: go on where something begins */
        *end = starts[k] > t && starts[k] < *end ? starts[k] : *end;
    }
    return store->n_levels;
}

static enum plim_status take_stretch(struct query *q, const int64_t *starts, int64_t from,
                                     int64_t to, struct plim_err *err)
{
    int64_t tail_from = q->store->level[0].done;
    for (int64_t t = from, end; t < to && t < tail_from; t = end) {
        size_t k = choose_level(q, starts, t, &end);
        end = end < to ? end : to;
        if (k < q->store->n_levels) {
            PLIM_TRY(take_level(q, &q->store->level[k], t, end, err));
        }
    }
    return to > tail_from ? take_tail(q, from > tail_from ? from : tail_from, to, err) : PLIM_OK;
}

/* ---- the whole ---- */

/* The step of the answer and the level to read. */
static void choose_step(struct query *q, int64_t want, uint64_t given)
{
    const struct plim_store *store = q->store;
    for (size_t k = 1; k < store->n_levels; k++) {
        int64_t step = store->level[k].step;
        if (step * STEPS_PER_BIN <= want || (given != 0 && want % step == 0)) {
            q->level = k;
        }
    }
    int64_t unit = store->level[q->level].step;
    q->step = (want + unit - 1) / unit * unit;
    q->step = q->step > 0 ? q->step : unit;
}

/* First and last wall time of everything; false: there is nothing. */
static enum plim_status extent(struct plim_store *store, struct plim__tail *tail, int64_t *first,
                               int64_t *last, bool *found, struct plim_err *err)
{
    int64_t starts[PLIM_STORE_LEVELS] = {0}, bad, next, begin = INT64_MAX;
    PLIM_TRY(plim__level_starts(store, starts, err));
    PLIM_TRY(plim__rows_scan(store, tail, NULL, NULL, &bad, &next, err));
    for (size_t k = 0; k < store->n_levels; k++) {
        begin = starts[k] < begin ? starts[k] : begin;
    }
    *found = begin != INT64_MAX || tail->rows > 0;
    begin = begin != INT64_MAX ? begin : tail->first;
    int64_t end = tail->rows > 0 ? tail->last : store->level[0].done - 1;
    *first = begin - plim__shift_at(store, begin);
    *last = end - plim__shift_at(store, end);
    for (size_t i = 1; i < store->eras.n;
         i++) { /* the wall clock may have been set back, or forth */
        const struct plim__era *era = &store->eras.items[i];
        if (era->start > begin && era->start <= end) {
            int64_t before = era->start - 1 - era[-1].shift, after = era->start - era->shift;
            *first = after < *first ? after : *first;
            *last = before > *last ? before : *last;
        }
    }
    return PLIM_OK;
}

enum plim_status plim__extent_ns(struct plim_store *store, uint64_t *first, uint64_t *last,
                                 struct plim_err *err)
{
    int64_t a = 0, b = 0;
    bool found = false;
    struct plim__tail tail = {0};
    enum plim_status st = extent(store, &tail, &a, &b, &found, err);
    plim__tail_fini(&tail);
    PLIM_TRY(st);
    *first = found && a > 0 ? (uint64_t)a * 1000000 : 0;
    *last = found && b > 0 ? (uint64_t)b * 1000000 : 0;
    return PLIM_OK;
}

struct asked {
    struct query q;
    const struct plim_store_query *query;
    struct plim_store_answer *out;
};

/* Clamp what was asked for to what there is and decide on step and level; false: nothing there. */
static enum plim_status prepare(struct asked *a, bool *found, struct plim_err *err)
{
    struct query *q = &a->q;
    int64_t first = 0, last = 0, id = 0;
    PLIM_TRY(extent(q->store, &q->tail, &first, &last, found, err));
    int64_t from = (int64_t)(a->query->from_ns / 1000000);
    int64_t to = a->query->to_ns != 0 ? (int64_t)((a->query->to_ns + 999999) / 1000000) : last + 1;
    if (*found) {
        from = from > first ? from : first;
        to = to < last + 1 ? to : last + 1;
    }
    if (!*found || from >= to) {
        *found = false;
        return PLIM_OK;
    }
    uint64_t most = a->query->max_points != 0 ? a->query->max_points : POINTS_DEFAULT;
    most = plim_min_u64(most, POINTS_MAX);
    int64_t least = (to - from + (int64_t)most - 1) / (int64_t)most;
    int64_t want = a->query->step_ns != 0 ? (int64_t)(a->query->step_ns / 1000000) : least;
    choose_step(q,
                a->query->max_points != 0 || a->query->step_ns == 0 ? (want > least ? want : least)
                                                                    : want,
                a->query->step_ns);
    if ((to - from) / q->step > POINTS_MAX) {
        return plim__fail(err, PLIM_E_USAGE, "more than %u bins; ask for a wider step", POINTS_MAX);
    }
    q->from = plim__floor_to(from, q->step);
    q->to = to;
    enum plim_status st = PLIM_OK;
    sqlite3_stmt *stmt = plim__sql(q->store, PLIM__SQL_FIGURE_ID);
    plim__bind_text(stmt, 1, a->query->figure);
    if (plim__step(q->store, stmt, &st, err)) {
        id = sqlite3_column_int64(stmt, 0);
    }
    q->figure = (uint32_t)id;
    q->subject = (uint32_t)a->query->subject;
    *found = id != 0;
    return st;
}

/* What is before this is coarser than the bins, or gone. */
static uint64_t complete_from(const struct query *q, const int64_t *starts)
{
    int64_t from = INT64_MAX;
    for (size_t k = 0; k < q->store->n_levels; k++) {
        if (q->store->level[k].step <= q->step && starts[k] < from) {
            from = starts[k];
        }
    }
    from = from != INT64_MAX ? from : q->tail.first;
    return plim__wall_ns(q->store, from);
}

static enum plim_status put_bins(struct asked *a, struct plim_err *err)
{
    for (size_t i = 0; i < a->q.cells.n; i++) {
        const struct plim_cell *c = &a->q.cells.items[i];
        if (c->n > 0) {
            struct plim_store_bin bin = {
                .time_ns = (uint64_t)(a->q.from + (int64_t)i * a->q.step) * 1000000,
                .n = c->n,
                .min = c->min,
                .mean = c->sum / (double)c->n,
                .max = c->max,
                .last = c->last,
            };
            PLIM_TRY(plim_vec_push(&a->out->bins, err, bin));
        }
    }
    a->out->step_ns = (uint64_t)a->q.step * 1000000;
    return PLIM_OK;
}

static enum plim_status answer(void *self, struct plim_err *err)
{
    struct asked *a = self;
    struct query *q = &a->q;
    int64_t starts[PLIM_STORE_LEVELS] = {0};
    bool found = false;
    PLIM_TRY(prepare(a, &found, err));
    PLIM_TRY(plim__level_starts(q->store, starts, err));
    a->out->complete_from_ns = complete_from(q, starts);
    if (!found) {
        a->out->step_ns = (uint64_t)q->step * 1000000;
        return PLIM_OK;
    }
    size_t n = (size_t)((q->to - q->from + q->step - 1) / q->step);
    PLIM_TRY(plim_vec_reserve(&q->cells, n, err));
    memset(q->cells.items, 0, n * sizeof(*q->cells.items));
    q->cells.n = n;
    for (size_t i = 0; i < q->store->eras.n; i++) {
        int64_t from = 0, to = 0;
        if (plim__era_range(q->store, i, q->from, q->to, &from, &to)) {
            q->shift = q->store->eras.items[i].shift;
            PLIM_TRY(take_stretch(q, starts, from, to, err));
        }
    }
    return put_bins(a, err);
}

enum plim_status plim_store_query(struct plim_store *store, const struct plim_store_query *query,
                                  struct plim_store_answer *out, struct plim_err *err)
{
    struct plim_store_answer fresh = {0};
    struct asked a = {.q = {.store = store}, .query = query, .out = &fresh};
    if (query->to_ns != 0 && query->from_ns >= query->to_ns) {
        return plim__fail(err, PLIM_E_USAGE, "the range of the query is empty");
    }
    enum plim_status st = plim__reading(store, answer, &a, err);
    plim_vec_fini(&a.q.cells);
    plim__tail_fini(&a.q.tail);
    if (st != PLIM_OK) {
        plim_store_answer_fini(&fresh);
        return st;
    }
    *out = fresh;
    return PLIM_OK;
}

void plim_store_answer_fini(struct plim_store_answer *answer)
{
    plim_vec_fini(&answer->bins);
    *answer = (struct plim_store_answer){0};
}
