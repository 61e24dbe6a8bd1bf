/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the tail in the database, and what is remembered of a file between calls. */

#include "store/store_int.h"

enum plim_status plim__rows_scan(struct plim_store *store, struct plim__tail *tail,
                                 void (*take)(void *self, const struct plim__tail *tail),
                                 void *self, int64_t *bad_seq, int64_t *next_seq,
                                 struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    sqlite3_stmt *stmt = plim__sql(store, PLIM__SQL_ROWS);
    plim__tail_reset(tail);
    *bad_seq = -1;
    *next_seq = 0;
    while (st == PLIM_OK && *bad_seq < 0 && plim__step(store, stmt, &st, err)) {
        *next_seq = sqlite3_column_int64(stmt, 0);
        enum plim_status row = plim__tail_read(tail, plim__column_bytes(stmt, 1), err);
        if (row == PLIM_E_DATA) {
            *bad_seq = *next_seq;
        } else if (row != PLIM_OK) {
            st = row;
        } else {
            (*next_seq)++;
            if (take != NULL) {
                take(self, tail);
            }
        }
    }
    if (stmt != NULL) {
        (void)sqlite3_reset(stmt);
    }
    return st;
}

enum plim_status plim__level_starts(struct plim_store *store, int64_t starts[PLIM_STORE_LEVELS],
                                    struct plim_err *err)
{
    int64_t begin = store->eras.n > 0 ? store->eras.items[0].start : 0;
    for (size_t k = 0; k < store->n_levels; k++) {
        bool found;
        PLIM_TRY(plim__ask(store, PLIM__SQL_FIRST_CHUNK, PLIM__ARGS(store->level[k].step, 0, 0),
                           &starts[k], &found, err));
        found = found && plim__possible(starts[k]);
        starts[k] = !found ? INT64_MAX : starts[k] > begin ? starts[k] : begin;
    }
    return PLIM_OK;
}

static enum plim_status recall_levels(struct plim_store *store, struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    sqlite3_stmt *stmt = plim__sql(store, PLIM__SQL_LEVELS);
    size_t n = 0;
    while (plim__step(store, stmt, &st, err)) {
        struct plim__level level = {.step = sqlite3_column_int64(stmt, 0),
                                    .keep = sqlite3_column_int64(stmt, 1),
                                    .done = sqlite3_column_int64(stmt, 2)};
        if (n == PLIM_STORE_LEVELS || level.step < PLIM_STORE_TICKS || level.step > INT32_MAX / 2 ||
            !plim__possible(level.done) || !plim__possible(level.keep)) {
            (void)sqlite3_reset(stmt);
            return plim__fail(err, PLIM_E_DATA, "history '%.150s': levels are damaged",
                              store->path);
        }
        level.span = level.step * PLIM_STORE_SPAN;
        store->level[n++] = level;
    }
    PLIM_TRY(st);
    if (n == 0) {
        return plim__fail(err, PLIM_E_DATA, "history '%.150s': levels are missing", store->path);
    }
    store->n_levels = n;
    return PLIM_OK;
}

static enum plim_status recall_eras(struct plim_store *store, struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    sqlite3_stmt *stmt = plim__sql(store, PLIM__SQL_ERAS);
    store->eras.n = 0;
    while (st == PLIM_OK && plim__step(store, stmt, &st, err)) {
        struct plim__era era = {sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1)};
        if (!plim__possible(era.start) || era.shift > PLIM_STORE_TIME_MAX ||
            era.shift < -PLIM_STORE_TIME_MAX) {
            (void)sqlite3_reset(stmt);
            return plim__fail(err, PLIM_E_DATA, "history '%.150s': eras are damaged", store->path);
        }
        st = plim_vec_push(&store->eras, err, era);
    }
    return st;
}

/* The writer's tail. What is damaged in it is cut off, so that rows that follow can be read. */
static enum plim_status recall_tail(struct plim_store *store, struct plim_err *err)
{
    int64_t bad_seq;
    PLIM_TRY(plim__rows_scan(store, &store->tail, NULL, NULL, &bad_seq, &store->seq, err));
    if (bad_seq >= 0) {
        store->state.unreadable++;
        PLIM_TRY(plim__run(store, PLIM__SQL_CUT_ROWS, bad_seq, 0, 0, err));
        PLIM_TRY(plim__rows_scan(store, &store->tail, NULL, NULL, &bad_seq, &store->seq, err));
    }
    int64_t done = store->level[0].done;
    store->last = store->tail.rows > 0 ? store->tail.last
                  : done > 0           ? done - plim__tick(store)
                                       : INT64_MIN;
    return PLIM_OK;
}

enum plim_status plim__recall(struct plim_store *store, struct plim_err *err)
{
    PLIM_TRY(recall_levels(store, err));
    PLIM_TRY(recall_eras(store, err));
    if (!store->read_only) {
        PLIM_TRY(recall_tail(store, err));
        plim_map_fini(&store->known);
        store->known_list.n = 0;
        memset(store->figure_id, 0, store->n_figures * sizeof(*store->figure_id));
    }
    store->stale = false;
    return PLIM_OK;
}
