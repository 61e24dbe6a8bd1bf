/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writing a batch: one transaction, so that a moment is in the history whole or not at all. What is remembered of the
 * file between batches is forgotten after any failure and read again: the file alone is true.
 */

#include "base/intern.h"
#include "store/store_int.h"

#define ASIDE_EVERY                                                                                \
    600u /* calls: a disk that damages all at once must not turn the history over and over */
#define KNOWN_MAX 8192u /* subjects remembered; thousands of short-lived ones come by */

static const char *text_of(const struct plim_batch *batch, uint32_t offset)
{
    return batch->text.p + offset;
}

/* Look up or add. labels: hash of the labels now, which are written when they changed. */
static enum plim_status subject_in_file(struct plim_store *store, const struct plim_batch *batch,
                                        const struct plim_batch_subject *subject, int64_t time,
                                        uint32_t *id, struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    const char *labels = text_of(batch, subject->labels);
    sqlite3_stmt *stmt = plim__sql(store, PLIM__SQL_SUBJECT_ID);
    plim__bind_text(stmt, 1, text_of(batch, subject->kind));
    plim__bind_text(stmt, 2, text_of(batch, subject->key));
    if (plim__step(store, stmt, &st, err)) {
        int64_t found = sqlite3_column_int64(stmt, 0);
        bool same = labels[0] == '\0' || strcmp(plim__column_text(stmt, 1), labels) == 0;
        (void)sqlite3_reset(stmt);
        *id = (uint32_t)found;
        if (same) {
            return PLIM_OK;
        }
        stmt = plim__sql(store, PLIM__SQL_SET_LABELS);
        (void)sqlite3_bind_int64(stmt, 1, found);
        plim__bind_text(stmt, 2, labels);
        (void)plim__step(store, stmt, &st, err);
        return st;
    }
    PLIM_TRY(st);
    stmt = plim__sql(store, PLIM__SQL_PUT_SUBJECT);
    plim__bind_text(stmt, 1, text_of(batch, subject->kind));
    plim__bind_text(stmt, 2, text_of(batch, subject->key));
    plim__bind_text(stmt, 3, labels[0] != '\0' ? labels : "{}");
    (void)sqlite3_bind_int64(stmt, 4, time);
    if (plim__step(store, stmt, &st, err)) {
        *id = (uint32_t)sqlite3_column_int64(stmt, 0);
        (void)plim__step(store, stmt, &st, err);
    }
    return st;
}

static enum plim_status subject_id(struct plim_store *store, const struct plim_batch *batch,
                                   const struct plim_batch_subject *subject, int64_t time,
                                   uint32_t *id, struct plim_err *err)
{
    const char *labels = text_of(batch, subject->labels);
    struct plim__known now = {.labels = plim_hash_bytes(labels, strlen(labels))};
    uint64_t *at = plim_map_get(&store->known, subject->hash);
    if (at != NULL && (labels[0] == '\0' || store->known_list.items[*at].labels == now.labels)) {
        *id = store->known_list.items[*at].id;
        return PLIM_OK;
    }
    PLIM_TRY(subject_in_file(store, batch, subject, time, &now.id, err));
    *id = now.id;
    if (at != NULL) {
        store->known_list.items[*at] = now;
        return PLIM_OK;
    }
    if (store->known_list.n >= KNOWN_MAX) {
        plim_map_fini(&store->known);
        store->known_list.n = 0;
    }
    PLIM_TRY(plim_vec_push(&store->known_list, err, now));
    return plim_map_put(&store->known, subject->hash, store->known_list.n - 1, err);
}

static enum plim_status figure_id(struct plim_store *store, uint16_t figure, uint16_t *id,
                                  struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    if (figure >= store->n_figures) {
        return plim__fail(err, PLIM_E_USAGE, "figure %u is not in the list", figure);
    }
    if (store->figure_id[figure] == 0) {
        for (int add = 0; add < 2 && st == PLIM_OK && store->figure_id[figure] == 0; add++) {
            sqlite3_stmt *stmt = plim__sql(store, add ? PLIM__SQL_PUT_FIGURE : PLIM__SQL_FIGURE_ID);
            plim__bind_text(stmt, 1, store->figures[figure]);
            if (plim__step(store, stmt, &st, err)) {
                store->figure_id[figure] = (uint16_t)sqlite3_column_int64(stmt, 0);
                (void)plim__step(store, stmt, &st, err);
            }
        }
    }
    *id = store->figure_id[figure];
    return st;
}

static enum plim_status put_event(struct plim_store *store, const struct plim_batch *batch,
                                  const struct plim_batch_event *event,
                                  const struct plim__moment *moment, uint32_t subject,
                                  struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    sqlite3_stmt *stmt = plim__sql(store, PLIM__SQL_PUT_EVENT);
    (void)sqlite3_bind_int64(stmt, 1, (int64_t)(event->time_ns / 1000000) + moment->shift);
    plim__bind_text(stmt, 2, text_of(batch, event->kind));
    if (subject != 0) {
        (void)sqlite3_bind_int64(stmt, 3, subject);
    }
    plim__bind_text(stmt, 4, text_of(batch, event->json));
    (void)plim__step(store, stmt, &st, err);
    return st;
}

static enum plim_status put_subjects(struct plim_store *store, const struct plim_batch *batch,
                                     const struct plim__moment *moment, struct plim_err *err)
{
    size_t at = 0, event = 0;
    for (size_t i = 0; i < batch->subjects.n; i++) {
        const struct plim_batch_subject *subject = &batch->subjects.items[i];
        uint32_t id = 0;
        PLIM_TRY(subject_id(store, batch, subject, moment->time, &id, err));
        for (size_t end = at + subject->n_points; at < end; at++) {
            uint16_t figure = 0;
            PLIM_TRY(figure_id(store, batch->figures.items[at], &figure, err));
            PLIM_TRY(plim__tail_value(&store->tail, id, figure, batch->values.items[at], err));
        }
        for (; event < batch->events.n; event++) {
            const struct plim_batch_event *e = &batch->events.items[event];
            if (e->subject != i && e->subject != UINT32_MAX) {
                break; /* of a later subject */
            }
            if (e->subject == i) {
                PLIM_TRY(put_event(store, batch, e, moment, id, err));
            }
        }
    }
    return PLIM_OK;
}

static enum plim_status put_row(struct plim_store *store, const struct plim__moment *moment,
                                struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    plim_buf_reset(&store->row);
    PLIM_TRY(plim__tail_end(&store->tail, moment->time, &store->row, err));
    sqlite3_stmt *stmt = plim__sql(store, PLIM__SQL_PUT_ROW);
    (void)sqlite3_bind_int64(stmt, 1, store->seq);
    (void)sqlite3_bind_blob64(stmt, 2, store->row.p, store->row.n, SQLITE_STATIC);
    (void)plim__step(store, stmt, &st, err);
    return st;
}

static enum plim_status put_all(struct plim_store *store, const struct plim_batch *batch,
                                const struct plim__moment *moment, struct plim_err *err)
{
    PLIM_TRY(plim__run(store, PLIM__SQL_BEGIN_WRITE, 0, 0, 0, err));
    if (moment->new_era) {
        PLIM_TRY(plim__run(store, PLIM__SQL_PUT_ERA, moment->time, moment->shift, 0, err));
        PLIM_TRY(plim_vec_push(&store->eras, err, (struct plim__era){moment->time, moment->shift}));
    }
    plim__tail_begin(&store->tail);
    PLIM_TRY(put_subjects(store, batch, moment, err));
    plim_vec_foreach (event, &batch->events) {
        if (event->subject == UINT32_MAX) {
            PLIM_TRY(put_event(store, batch, event, moment, 0, err));
        }
    }
    PLIM_TRY(put_row(store, moment, err));
    return plim__run(store, PLIM__SQL_COMMIT, 0, 0, 0, err);
}

static enum plim_status put_once(struct plim_store *store, const struct plim_batch *batch,
                                 struct plim_err *err)
{
    if (store->db == NULL) {
        PLIM_TRY(plim__database_open(store, err));
    }
    if (store->stale) {
        PLIM_TRY(plim__recall(store, err));
    }
    PLIM_TRY(plim__log_fits(store, err));
    struct plim__moment moment = plim__ledger_moment(store, batch->time_ns, batch->mono_ns);
    if (moment.time == INT64_MIN) {
        store->state.skipped++;
        return PLIM_OK;
    }
    if (store->tail.rows > 0 && plim__floor_to(store->tail.first, store->level[0].span) !=
                                    plim__floor_to(moment.time, store->level[0].span)) {
        PLIM_TRY(plim__pack(store, err));
        PLIM_TRY(plim__make_room(store, false, err));
    }
    PLIM_TRY(put_all(store, batch, &moment, err));
    store->seq++;
    store->last = moment.time;
    store->last_mono_ns = batch->mono_ns;
    store->state.batches++;
    store->state.points += batch->values.n;
    store->state.fault = PLIM_STORE_NONE;
    store->state.why[0] = '\0';
    return PLIM_OK;
}

/* What a failure leaves behind is undone; the next call reads the file again. */
static void undo(struct plim_store *store)
{
    plim__rollback(store);
    store->stale = true;
}

enum plim_status plim_store_put(struct plim_store *store, const struct plim_batch *batch,
                                struct plim_err *err)
{
    if (store->read_only) {
        return plim__fail(err, PLIM_E_USAGE, "this history was opened for reading only");
    }
    enum plim_status st = put_once(store, batch, err);
    store->since_aside++;
    if (st == PLIM_OK) {
        return st;
    }
    undo(store);
    if (st == PLIM_E_DATA) {
        if (store->state.set_aside > 0 && store->since_aside < ASIDE_EVERY) {
            return PLIM_E_IO;
        }
        store->since_aside = 0;
        PLIM_TRY(plim__begin_anew(store, err));
    } else if (store->state.fault == PLIM_STORE_FULL) {
        st = plim__make_room(store, true, err);
        if (st != PLIM_OK) {
            undo(store);
            return st;
        }
    } else {
        return st;
    }
    st = put_once(store, batch, err);
    if (st != PLIM_OK) {
        undo(store);
    }
    return st;
}
