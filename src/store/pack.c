/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Packing: the rows of a full span become one chunk for each subject, and full spans of a level become chunks of the
 * next. Every value is written once for each level and never again.
 *
 * The rows hold all series of one time; chunks hold all times of one series. The rows are therefore replayed several
 * times, each time for as many series as fit in VALUES_MAX, so that memory stays small whatever the number of series.
 * A transaction that would make the log too long is committed in between: chunks before `done` moves are written over
 * when the work is taken up again.
 */

#include "store/store_int.h"

#include "base/num.h"

#include <math.h>
#include <stdlib.h>

#define VALUES_MAX 65536u /* values in memory while rows are replayed: 512 KiB */

struct packing {
    struct plim_store *store;
    struct plim__tail replay;
    PLIM_VEC(uint32_t) order;  /* slots, by subject and figure */
    PLIM_VEC(int64_t) times;   /* of the rows */
    PLIM_VEC(double) values;   /* [group][rows], NaN: nothing */
    PLIM_VEC(int64_t) own;     /* times at which the subject has anything */
    PLIM_VEC(size_t) own_rows; /* and which rows these are */
    size_t begin, end;         /* the group: order[begin, end) */
    size_t rows;
    struct plim_buf out;
    uint64_t written; /* bytes since the last commit */
};

/* qsort has no argument for the slots: sort what they are together with their number. */
struct keyed {
    uint64_t key;
    uint32_t slot;
};

static int by_key(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static enum plim_status sort_slots(struct packing *p, struct plim_err *err)
{
    const struct plim__tail *tail = &p->store->tail;
    struct keyed *keyed = malloc((tail->slots.n + 1) * sizeof(*keyed));
    if (keyed == NULL || plim_vec_reserve(&p->order, tail->slots.n, err) != PLIM_OK) {
        free(keyed);
        return plim__fail(err, PLIM_E_NOMEM, "no memory for packing history");
    }
    for (size_t i = 0; i < tail->slots.n; i++) {
        const struct plim__slot *slot = &tail->slots.items[i];
        keyed[i] = (struct keyed){plim__slot_key(slot->subject, slot->figure), (uint32_t)i};
    }
    qsort(keyed, tail->slots.n, sizeof(*keyed), by_key);
    for (size_t i = 0; i < tail->slots.n; i++) {
        p->order.items[p->order.n++] = keyed[i].slot;
    }
    free(keyed);
    return PLIM_OK;
}

static uint32_t subject_at(const struct packing *p, size_t i)
{
    return p->store->tail.slots.items[p->order.items[i]].subject;
}

static size_t subject_end(const struct packing *p, size_t begin)
{
    size_t end = begin;
    while (end < p->order.n && subject_at(p, end) == subject_at(p, begin)) {
        end++;
    }
    return end;
}

/* The next group: whole subjects, at least one. */
static void choose_group(struct packing *p)
{
    p->begin = p->end;
    do {
        p->end = subject_end(p, p->end);
    } while (p->end < p->order.n && (subject_end(p, p->end) - p->begin) * p->rows <= VALUES_MAX);
}

static void take_row(void *self, const struct plim__tail *tail)
{
    struct packing *p = self;
    size_t row = tail->rows - 1;
    if (row >= p->rows) {
        return;
    }
    p->times.items[row] = tail->last;
    for (size_t i = p->begin; i < p->end; i++) {
        uint32_t at = p->order.items[i];
        if (at < tail->slots.n && tail->slots.items[at].present) {
            p->values.items[(i - p->begin) * p->rows + row] = tail->slots.items[at].value;
        }
    }
}

static double value_at(const struct packing *p, size_t i, size_t row)
{
    return p->values.items[(i - p->begin) * p->rows + row];
}

static bool any(const struct packing *p, size_t begin, size_t end, size_t row)
{
    for (size_t i = begin; i < end; i++) {
        if (!isnan(value_at(p, i, row))) {
            return true;
        }
    }
    return false;
}

static enum plim_status put_chunk(struct packing *p, int64_t step, int64_t start, uint32_t subject,
                                  struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    plim_buf_reset(&p->out);
    PLIM_TRY(plim__packer_end(&p->store->packer, &p->out, err));
    sqlite3_stmt *stmt = plim__sql(p->store, PLIM__SQL_PUT_CHUNK);
    (void)sqlite3_bind_int64(stmt, 1, step);
    (void)sqlite3_bind_int64(stmt, 2, start);
    (void)sqlite3_bind_int64(stmt, 3, subject);
    (void)sqlite3_bind_blob64(stmt, 4, p->out.p, p->out.n, SQLITE_STATIC);
    (void)plim__step(p->store, stmt, &st, err);
    p->written += p->out.n + 64;
    return st;
}

/* One subject of the group: the rows in which it was there, and its figures in them. */
static enum plim_status pack_subject(struct packing *p, size_t begin, size_t end, int64_t start,
                                     struct plim_err *err)
{
    struct plim_store *store = p->store;
    p->own.n = p->own_rows.n = 0;
    for (size_t row = 0; row < p->rows; row++) {
        if (any(p, begin, end, row)) {
            p->own.items[p->own.n++] = p->times.items[row];
            p->own_rows.items[p->own_rows.n++] = row;
        }
    }
    if (p->own.n == 0) {
        return PLIM_OK;
    }
    plim__packer_begin(&store->packer, false, start, plim__tick(store), p->own.items, p->own.n);
    for (size_t i = begin; i < end; i++) {
        for (size_t n = 0; n < p->own_rows.n; n++) {
            double value = value_at(p, i, p->own_rows.items[n]);
            store->cells.items[n] = (struct plim_cell){0};
            if (!isnan(value)) {
                plim__cell_point(&store->cells.items[n], value);
            }
        }
        plim__packer_figure(&store->packer, store->tail.slots.items[p->order.items[i]].figure,
                            store->cells.items);
    }
    uint32_t subject = subject_at(p, begin);
    PLIM_TRY(put_chunk(p, store->level[0].step, start, subject, err));
    return plim__run(store, PLIM__SQL_SET_LAST, subject, p->own.items[p->own.n - 1], 0, err);
}

static enum plim_status pack_group(struct packing *p, int64_t start, struct plim_err *err)
{
    int64_t bad, next;
    size_t cells = (p->end - p->begin) * p->rows;
    PLIM_TRY(plim_vec_reserve(&p->values, cells, err));
    for (size_t i = 0; i < cells; i++) {
        p->values.items[i] = NAN;
    }
    PLIM_TRY(plim__rows_scan(p->store, &p->replay, take_row, p, &bad, &next, err));
    for (size_t i = p->begin, end; i < p->end; i = end) {
        end = subject_end(p, i);
        PLIM_TRY(pack_subject(p, i, end, start, err));
    }
    return PLIM_OK;
}

static enum plim_status pack_rows(struct packing *p, struct plim_err *err)
{
    struct plim_store *store = p->store;
    struct plim__level *level = &store->level[0];
    int64_t start = plim__floor_to(store->tail.first, level->span);
    p->rows = store->tail.rows;
    PLIM_TRY(sort_slots(p, err));
    PLIM_TRY(plim_vec_reserve(&p->times, p->rows, err));
    PLIM_TRY(plim_vec_reserve(&p->own, p->rows, err));
    PLIM_TRY(plim_vec_reserve(&p->own_rows, p->rows, err));
    PLIM_TRY(plim_vec_reserve(&store->cells, p->rows, err));
    PLIM_TRY(plim__run(store, PLIM__SQL_BEGIN_WRITE, 0, 0, 0, err));
    while (p->end < p->order.n) {
        choose_group(p);
        PLIM_TRY(pack_group(p, start, err));
    }
    PLIM_TRY(plim__run(store, PLIM__SQL_CUT_ROWS, 0, 0, 0, err));
    PLIM_TRY(plim__run(store, PLIM__SQL_SET_DONE, level->step, start + level->span, 0, err));
    PLIM_TRY(plim__run(store, PLIM__SQL_COMMIT, 0, 0, 0, err));
    level->done = start + level->span;
    plim__tail_reset(&store->tail);
    return PLIM_OK;
}

/* ---- from level to level ---- */

/* Cells of one figure over a span of the coarser level. */
struct track {
    uint32_t figure;
    struct plim_cell cells[PLIM_STORE_SPAN];
};

struct rolling {
    struct packing *p;
    const struct plim__level *from, *to;
    int64_t start;
    PLIM_VEC(struct track *) tracks; /* owned, order: figure; the first n_tracks are in use */
    size_t n_tracks;
};

static enum plim_status track_of(struct rolling *r, uint32_t figure, struct track **out,
                                 struct plim_err *err)
{
    size_t at = 0;
    while (at < r->n_tracks && r->tracks.items[at]->figure < figure) {
        at++;
    }
    if (at < r->n_tracks && r->tracks.items[at]->figure == figure) {
        *out = r->tracks.items[at];
        return PLIM_OK;
    }
    if (r->n_tracks == r->tracks.n) {
        struct track *fresh = malloc(sizeof(*fresh));
        if (fresh == NULL || plim_vec_push(&r->tracks, err, fresh) != PLIM_OK) {
            free(fresh);
            return plim__fail(err, PLIM_E_NOMEM, "no memory for packing history");
        }
    }
    struct track *track = r->tracks.items[r->n_tracks];
    memset(track, 0, sizeof(*track));
    track->figure = figure;
    memmove(&r->tracks.items[at + 1], &r->tracks.items[at],
            (r->n_tracks - at) * sizeof(struct track *));
    r->tracks.items[at] = track;
    r->n_tracks++;
    *out = track;
    return PLIM_OK;
}

/* Take a chunk of the finer level in. What is damaged is passed over and counted. */
static enum plim_status take_chunk(struct rolling *r, struct plim_str bytes, int64_t start,
                                   struct plim_err *err)
{
    struct plim_store *store = r->p->store;
    struct plim__chunk *chunk = &store->chunk;
    enum plim_status st = plim__chunk_open(chunk, bytes, start, err);
    if (st != PLIM_OK) {
        store->state.unreadable += st == PLIM_E_DATA;
        return st == PLIM_E_DATA ? PLIM_OK : st;
    }
    PLIM_TRY(plim_vec_reserve(&store->cells, chunk->rows, err));
    uint32_t figure = 0;
    struct plim_str body;
    while (plim__chunk_next(chunk, &figure, &body)) {
        struct track *track = NULL;
        if (!plim__chunk_cells(chunk, body, store->cells.items)) {
            store->state.unreadable++;
            break;
        }
        PLIM_TRY(track_of(r, figure, &track, err));
        for (size_t i = 0; i < chunk->rows; i++) {
            int64_t bin = (chunk->times.items[i] - r->start) / r->to->step;
            if (bin >= 0 && bin < PLIM_STORE_SPAN) {
                plim__cell_join(&track->cells[bin], &store->cells.items[i]);
            }
        }
    }
    return PLIM_OK;
}

static enum plim_status put_tracks(struct rolling *r, uint32_t subject, struct plim_err *err)
{
    struct plim_store *store = r->p->store;
    int64_t times[PLIM_STORE_SPAN];
    size_t bins[PLIM_STORE_SPAN], n = 0;
    for (size_t bin = 0; bin < PLIM_STORE_SPAN; bin++) {
        bool there = false;
        for (size_t k = 0; k < r->n_tracks && !there; k++) {
            there = r->tracks.items[k]->cells[bin].n > 0;
        }
        if (there) {
            times[n] = r->start + (int64_t)bin * r->to->step;
            bins[n++] = bin;
        }
    }
    if (n == 0) {
        return PLIM_OK;
    }
    plim__packer_begin(&store->packer, true, r->start, r->to->step, times, n);
    for (size_t k = 0; k < r->n_tracks; k++) {
        struct plim_cell cells[PLIM_STORE_SPAN];
        for (size_t i = 0; i < n; i++) {
            cells[i] = r->tracks.items[k]->cells[bins[i]];
        }
        plim__packer_figure(&store->packer, r->tracks.items[k]->figure, cells);
    }
    return put_chunk(r->p, r->to->step, r->start, subject, err);
}

static enum plim_status roll_subject(struct rolling *r, uint32_t subject, struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    r->n_tracks = 0;
    for (int64_t at = r->start; at < r->start + r->to->span && st == PLIM_OK; at += r->from->span) {
        sqlite3_stmt *stmt = plim__sql(r->p->store, PLIM__SQL_CHUNK);
        (void)sqlite3_bind_int64(stmt, 1, r->from->step);
        (void)sqlite3_bind_int64(stmt, 2, at);
        (void)sqlite3_bind_int64(stmt, 3, subject);
        if (plim__step(r->p->store, stmt, &st, err)) {
            st = take_chunk(r, plim__column_bytes(stmt, 0), at, err);
            (void)sqlite3_reset(stmt);
        }
    }
    return st == PLIM_OK ? put_tracks(r, subject, err) : st;
}

/* The subjects of a span, those that were there longest first, and no more than are kept. */
static enum plim_status choose_subjects(struct rolling *r, struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    struct plim_store *store = r->p->store;
    int64_t all = 0, end = r->start + r->to->span;
    bool found;
    PLIM_TRY(plim__ask(store, PLIM__SQL_COUNT_SUBJECTS, PLIM__ARGS(r->from->step, r->start, end),
                       &all, &found, err));
    sqlite3_stmt *stmt = plim__sql(store, PLIM__SQL_CHUNK_SUBJECTS);
    (void)sqlite3_bind_int64(stmt, 1, r->from->step);
    (void)sqlite3_bind_int64(stmt, 2, r->start);
    (void)sqlite3_bind_int64(stmt, 3, end);
    (void)sqlite3_bind_int64(stmt, 4, store->max_subjects);
    r->p->order.n = 0;
    while (st == PLIM_OK && plim__step(store, stmt, &st, err)) {
        st = plim_vec_push(&r->p->order, err, (uint32_t)sqlite3_column_int64(stmt, 0));
    }
    store->state.crowded += plim_sub_sat((uint64_t)all, r->p->order.n);
    return st;
}

static enum plim_status commit_when_long(struct packing *p, struct plim_err *err)
{
    if (p->written < plim__log_limit(p->store) / 4) {
        return PLIM_OK;
    }
    p->written = 0;
    PLIM_TRY(plim__run(p->store, PLIM__SQL_COMMIT, 0, 0, 0, err));
    PLIM_TRY(plim__log_fits(p->store, err));
    return plim__run(p->store, PLIM__SQL_BEGIN_WRITE, 0, 0, 0, err);
}

static enum plim_status roll_span(struct rolling *r, struct plim__level *to, struct plim_err *err)
{
    struct plim_store *store = r->p->store;
    PLIM_TRY(plim__run(store, PLIM__SQL_BEGIN_WRITE, 0, 0, 0, err));
    PLIM_TRY(choose_subjects(r, err));
    for (size_t i = 0; i < r->p->order.n; i++) {
        PLIM_TRY(roll_subject(r, r->p->order.items[i], err));
        PLIM_TRY(commit_when_long(r->p, err));
    }
    PLIM_TRY(plim__run(store, PLIM__SQL_SET_DONE, to->step, r->start + to->span, 0, err));
    PLIM_TRY(plim__run(store, PLIM__SQL_COMMIT, 0, 0, 0, err));
    to->done = r->start + to->span;
    return PLIM_OK;
}

/* All full spans of one level; stretches without anything are stepped over. */
static enum plim_status roll_level(struct rolling *r, struct plim__level *to, struct plim_err *err)
{
    while (to->done + to->span <= r->from->done) {
        int64_t first = 0;
        bool found;
        PLIM_TRY(plim__ask(r->p->store, PLIM__SQL_NEXT_CHUNK,
                           PLIM__ARGS(r->from->step, to->done, 0), &first, &found, err));
        r->start = plim__floor_to(found && first < r->from->done ? first : r->from->done, to->span);
        if (r->start + to->span > r->from->done) {
            PLIM_TRY(plim__run(r->p->store, PLIM__SQL_SET_DONE, to->step, r->start, 0, err));
            to->done = r->start;
            return PLIM_OK;
        }
        PLIM_TRY(roll_span(r, to, err));
    }
    return PLIM_OK;
}

static void packing_fini(struct packing *p)
{
    plim__tail_fini(&p->replay);
    plim_vec_fini(&p->order);
    plim_vec_fini(&p->times);
    plim_vec_fini(&p->values);
    plim_vec_fini(&p->own);
    plim_vec_fini(&p->own_rows);
    plim_buf_fini(&p->out);
}

enum plim_status plim__pack(struct plim_store *store, struct plim_err *err)
{
    struct packing p = {.store = store};
    struct rolling r = {.p = &p};
    enum plim_status st = pack_rows(&p, err);
    for (size_t k = 1; k < store->n_levels && st == PLIM_OK; k++) {
        r.from = &store->level[k - 1];
        r.to = &store->level[k];
        st = roll_level(&r, &store->level[k], err);
    }
    plim_vec_foreach (track, &r.tracks) {
        free(*track);
    }
    plim_vec_fini(&r.tracks);
    packing_fini(&p);
    return st;
}
