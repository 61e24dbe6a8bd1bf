/* SPDX-License-Identifier: Apache-2.0 */
/* Lists: subjects, their figures, events; and the state of the store. */

#include "store/store_int.h"

/* ---- subjects ---- */

struct subjects {
    struct plim_store *store;
    int64_t from, to; /* wall ms */
    struct plim_arena *arena;
    struct plim_store_subjects *out;
    struct plim__tail tail;
    struct plim_map present;
};

static enum plim_status copy_text(struct plim_arena *arena, const char *text, const char **out,
                                  struct plim_err *err)
{
    struct plim_str copy;
    PLIM_TRY(plim_arena_str(arena, plim_str_from(text), &copy, err));
    *out = copy.p;
    return PLIM_OK;
}

/* Subjects of the tail's newest row: they are there still. */
static enum plim_status find_present(struct subjects *s, struct plim_err *err)
{
    plim_vec_foreach (slot, &s->tail.slots) {
        if (slot->present) {
            PLIM_TRY(plim_map_put(&s->present, slot->subject, 1, err));
        }
    }
    return PLIM_OK;
}

static enum plim_status take_subject(struct subjects *s, sqlite3_stmt *stmt, struct plim_err *err)
{
    struct plim_store *store = s->store;
    struct plim_store_subject subject = {.id = (uint64_t)sqlite3_column_int64(stmt, 0)};
    int64_t first = sqlite3_column_int64(stmt, 4);
    bool present = plim_map_get(&s->present, subject.id) != NULL;
    int64_t last = present ? s->tail.last : sqlite3_column_int64(stmt, 5);
    subject.first_ns = plim__wall_ns(store, first);
    subject.last_ns = plim__wall_ns(store, last);
    bool there = false;
    for (size_t i = 0; i < store->eras.n && !there; i++) {
        int64_t from = 0, to = 0;
        there = plim__era_range(store, i, s->from, s->to, &from, &to) && first < to && last >= from;
    }
    if (!there) {
        return PLIM_OK;
    }
    PLIM_TRY(copy_text(s->arena, plim__column_text(stmt, 1), &subject.kind, err));
    PLIM_TRY(copy_text(s->arena, plim__column_text(stmt, 2), &subject.key, err));
    PLIM_TRY(copy_text(s->arena, plim__column_text(stmt, 3), &subject.labels, err));
    return plim_vec_push(&s->out->list, err, subject);
}

static int64_t wall_end(uint64_t to_ns)
{
    return to_ns != 0 && to_ns < INT64_MAX ? (int64_t)((to_ns + 999999) / 1000000) : INT64_MAX / 4;
}

static enum plim_status list_subjects(void *self, struct plim_err *err)
{
    struct subjects *s = self;
    enum plim_status st = PLIM_OK;
    int64_t bad, next;
    PLIM_TRY(plim__rows_scan(s->store, &s->tail, NULL, NULL, &bad, &next, err));
    PLIM_TRY(find_present(s, err));
    sqlite3_stmt *stmt = plim__sql(s->store, PLIM__SQL_SUBJECTS);
    while (st == PLIM_OK && plim__step(s->store, stmt, &st, err)) {
        st = take_subject(s, stmt, err);
    }
    return st;
}

enum plim_status plim_store_subjects(struct plim_store *store, uint64_t from_ns, uint64_t to_ns,
                                     struct plim_arena *arena, struct plim_store_subjects *out,
                                     struct plim_err *err)
{
    struct subjects s = {.store = store,
                         .from = (int64_t)(from_ns / 1000000),
                         .to = wall_end(to_ns),
                         .arena = arena,
                         .out = out};
    enum plim_status st = plim__reading(store, list_subjects, &s, err);
    plim__tail_fini(&s.tail);
    plim_map_fini(&s.present);
    return st;
}

/* ---- figures of a subject ---- */

struct figures {
    struct plim_store *store;
    uint32_t subject;
    int64_t from, to;       /* wall ms */
    PLIM_VEC(uint64_t) ids; /* a bit for each */
    struct plim_arena *arena;
    struct plim_store_names *names;
    struct plim__tail tail;
};

static void mark(struct figures *f, uint32_t figure)
{
    if (figure / 64 < f->ids.n) {
        f->ids.items[figure / 64] |= UINT64_C(1) << figure % 64;
    }
}

static enum plim_status figures_of_chunk(struct figures *f, const struct plim__level *level,
                                         int64_t time, struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    struct plim__chunk *chunk = &f->store->chunk;
    int64_t start = plim__floor_to(time, level->span);
    sqlite3_stmt *stmt = plim__sql(f->store, PLIM__SQL_CHUNK);
    (void)sqlite3_bind_int64(stmt, 1, level->step);
    (void)sqlite3_bind_int64(stmt, 2, start);
    (void)sqlite3_bind_int64(stmt, 3, f->subject);
    if (plim__step(f->store, stmt, &st, err) &&
        plim__chunk_open(chunk, plim__column_bytes(stmt, 0), start, err) == PLIM_OK) {
        uint32_t figure;
        struct plim_str body;
        while (plim__chunk_next(chunk, &figure, &body)) {
            mark(f, figure);
        }
    }
    if (stmt != NULL) {
        (void)sqlite3_reset(stmt);
    }
    return st;
}

static enum plim_status name_figures(struct figures *f, struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    sqlite3_stmt *stmt = plim__sql(f->store, PLIM__SQL_FIGURES);
    while (st == PLIM_OK && plim__step(f->store, stmt, &st, err)) {
        uint64_t id = (uint64_t)sqlite3_column_int64(stmt, 0);
        const char *name;
        if (id / 64 < f->ids.n && (f->ids.items[id / 64] >> id % 64 & 1) != 0) {
            st = copy_text(f->arena, plim__column_text(stmt, 1), &name, err);
            if (st == PLIM_OK) {
                st = plim_vec_push(&f->names->list, err, name);
            }
        }
    }
    return st;
}

/* Chunks of every level at the beginning and at the end of the time that the subject was there. */
static enum plim_status figures_between(struct figures *f, int64_t from, int64_t last,
                                        struct plim_err *err)
{
    for (size_t k = 0; k < f->store->n_levels; k++) {
        const struct plim__level *level = &f->store->level[k];
        PLIM_TRY(figures_of_chunk(f, level, last < level->done ? last : level->done - 1, err));
        PLIM_TRY(figures_of_chunk(f, level, from, err));
    }
    return PLIM_OK;
}

static enum plim_status list_figures(void *self, struct plim_err *err)
{
    struct figures *f = self;
    enum plim_status st = PLIM_OK;
    int64_t bad, next, first = 0, last = -1;
    PLIM_TRY(plim__rows_scan(f->store, &f->tail, NULL, NULL, &bad, &next, err));
    plim_vec_foreach (slot, &f->tail.slots) {
        if (slot->subject == f->subject) {
            mark(f, slot->figure);
        }
    }
    sqlite3_stmt *stmt = plim__sql(f->store, PLIM__SQL_LIFETIME);
    (void)sqlite3_bind_int64(stmt, 1, f->subject);
    if (plim__step(f->store, stmt, &st, err)) {
        first = sqlite3_column_int64(stmt, 0);
        last = sqlite3_column_int64(stmt, 1);
        (void)sqlite3_reset(stmt);
    }
    PLIM_TRY(st);
    for (size_t i = 0; i < f->store->eras.n; i++) {
        int64_t from = 0, to = 0;
        if (plim__era_range(f->store, i, f->from, f->to, &from, &to) && from <= last &&
            to > first) {
            PLIM_TRY(
                figures_between(f, from > first ? from : first, to <= last ? to - 1 : last, err));
        }
    }
    return name_figures(f, err);
}

enum plim_status plim_store_figures(struct plim_store *store, uint64_t subject, uint64_t from_ns,
                                    uint64_t to_ns, struct plim_arena *arena,
                                    struct plim_store_names *names, struct plim_err *err)
{
    struct figures f = {.store = store,
                        .subject = (uint32_t)subject,
                        .from = (int64_t)(from_ns / 1000000),
                        .to = wall_end(to_ns),
                        .arena = arena,
                        .names = names};
    PLIM_TRY(plim_vec_reserve(&f.ids, PLIM_CHUNK_FIGURES / 32, err));
    f.ids.n = PLIM_CHUNK_FIGURES / 32;
    memset(f.ids.items, 0, f.ids.n * sizeof(*f.ids.items));
    enum plim_status st = plim__reading(store, list_figures, &f, err);
    plim__tail_fini(&f.tail);
    plim_vec_fini(&f.ids);
    return st;
}

/* ---- events ---- */

struct events {
    struct plim_store *store;
    const struct plim_store_event_filter *filter;
    bool (*take)(void *self, const struct plim_store_event *event);
    void *self;
};

static enum plim_status events_of_era(struct events *e, int64_t from, int64_t to, bool *more,
                                      struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    sqlite3_stmt *stmt = plim__sql(e->store, PLIM__SQL_EVENTS);
    (void)sqlite3_bind_int64(stmt, 1, from);
    (void)sqlite3_bind_int64(stmt, 2, to);
    plim__bind_text(stmt, 3, e->filter->kind);
    (void)sqlite3_bind_int64(stmt, 4, (int64_t)e->filter->subject);
    (void)sqlite3_bind_int64(stmt, 5, (int64_t)e->filter->after);
    (void)sqlite3_bind_int64(stmt, 6, e->filter->limit != 0 ? e->filter->limit : 1000);
    while (*more && plim__step(e->store, stmt, &st, err)) {
        struct plim_store_event event = {
            .id = (uint64_t)sqlite3_column_int64(stmt, 0),
            .time_ns = plim__wall_ns(e->store, sqlite3_column_int64(stmt, 1)),
            .kind = plim__column_text(stmt, 2),
            .subject = (uint64_t)sqlite3_column_int64(stmt, 3),
            .json = plim__column_text(stmt, 4),
        };
        *more = e->take(e->self, &event);
    }
    if (stmt != NULL) {
        (void)sqlite3_reset(stmt);
    }
    return st;
}

static enum plim_status list_events(void *self, struct plim_err *err)
{
    struct events *e = self;
    bool more = true;
    for (size_t i = 0; i < e->store->eras.n && more; i++) {
        int64_t from = 0, to = 0;
        if (plim__era_range(e->store, i, (int64_t)(e->filter->from_ns / 1000000),
                            wall_end(e->filter->to_ns), &from, &to)) {
            PLIM_TRY(events_of_era(e, from, to, &more, err));
        }
    }
    return PLIM_OK;
}

enum plim_status plim_store_events(struct plim_store *store,
                                   const struct plim_store_event_filter *filter,
                                   bool (*take)(void *self, const struct plim_store_event *event),
                                   void *self, struct plim_err *err)
{
    struct events e = {store, filter, take, self};
    return plim__reading(store, list_events, &e, err);
}

/* ---- state ---- */

static enum plim_status look_at_levels(void *self, struct plim_err *err)
{
    struct plim_store *store = self;
    struct plim_store_state *state = &store->state;
    int64_t starts[PLIM_STORE_LEVELS];
    PLIM_TRY(plim__level_starts(store, starts, err));
    state->n_levels = store->n_levels;
    for (size_t k = 0; k < store->n_levels; k++) {
        const struct plim__level *level = &store->level[k];
        state->level[k] = (struct plim_store_level){(uint64_t)level->step * 1000000,
                                                    (uint64_t)level->keep * 1000000};
        state->level_from_ns[k] = starts[k] != INT64_MAX ? plim__wall_ns(store, starts[k]) : 0;
    }
    return plim__extent_ns(store, &state->first_ns, &state->last_ns, err);
}

static void count(struct plim_store *store)
{
    store->state.bytes = plim__file_bytes(store, "") + plim__file_bytes(store, "-wal");
    store->state.max_bytes = store->max_bytes;
    store->state.series = store->tail.slots.n;
}

void plim_store_counts(struct plim_store *store, struct plim_store_state *out)
{
    count(store);
    struct plim_store_state now = store->state;
    now.first_ns = out->first_ns;
    now.last_ns = out->last_ns;
    now.n_levels = out->n_levels;
    memcpy(now.level, out->level, sizeof(now.level));
    memcpy(now.level_from_ns, out->level_from_ns, sizeof(now.level_from_ns));
    *out = now;
}

void plim_store_state(struct plim_store *store, struct plim_store_state *out)
{
    struct plim_store_state *state = &store->state;
    enum plim_store_fault fault = state->fault;
    char why[sizeof(state->why)];
    memcpy(why, state->why, sizeof(why));
    count(store);
    if (plim__reading(store, look_at_levels, store, NULL) == PLIM_OK || !store->read_only) {
        state->fault = fault; /* only calls that write tell a writer's fault */
        memcpy(state->why, why, sizeof(why));
    }
    *out = *state;
}

const char *plim_store_fault_text(enum plim_store_fault fault)
{
    static const char *const table[] = {
#define PLIM__X(name, text) text,
        PLIM_STORE_FAULT_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)fault < PLIM_STORE_FAULTS ? table[fault] : "failed";
}
