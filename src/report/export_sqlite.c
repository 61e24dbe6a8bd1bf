/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot as an SQLite database: one table for each noun, so that people can ask their own questions. The tables are
 * described in docs/format/export-sqlite.md. Numbers beyond 2^63 - 1 (no real address is) are stored as their two's
 * complement, which SQLite shows negative.
 */

#include "report/export.h"

#include "heap/lives.h"
#include "heap/totals.h"

#include <sqlite3.h>
#include <stdio.h>

#define SCHEMA_VERSION "1"

static const char schema[] =
    "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;"
    "CREATE TABLE frame(id INTEGER PRIMARY KEY, name TEXT NOT NULL, file TEXT NOT NULL,"
    " line INTEGER NOT NULL) STRICT;"
    "CREATE TABLE stack(id INTEGER PRIMARY KEY, site INTEGER NOT NULL, kind_guess TEXT NOT NULL,"
    " label TEXT NOT NULL) STRICT;"
    "CREATE TABLE stack_frame(stack INTEGER NOT NULL REFERENCES stack, depth INTEGER NOT NULL,"
    " frame INTEGER NOT NULL REFERENCES frame, PRIMARY KEY(stack, depth)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE segment(device INTEGER NOT NULL, addr INTEGER NOT NULL, size INTEGER NOT NULL,"
    " stream INTEGER NOT NULL, pool TEXT NOT NULL, expandable INTEGER NOT NULL,"
    " start INTEGER NOT NULL, end INTEGER, stack INTEGER) STRICT;"
    "CREATE TABLE block(device INTEGER NOT NULL, addr INTEGER NOT NULL, size INTEGER NOT NULL,"
    " requested INTEGER NOT NULL, stream INTEGER NOT NULL, pool TEXT NOT NULL,"
    " start INTEGER NOT NULL, freed INTEGER, end INTEGER, stack INTEGER) STRICT;"
    "CREATE TABLE event(device INTEGER NOT NULL, event INTEGER NOT NULL, action TEXT NOT NULL,"
    " addr INTEGER, device_free INTEGER, size INTEGER NOT NULL, time_us INTEGER,"
    " stream INTEGER NOT NULL, pool TEXT, stack INTEGER, compile_context TEXT, user_metadata TEXT,"
    " PRIMARY KEY(device, event)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE annotation(device INTEGER NOT NULL, name TEXT NOT NULL, time_us INTEGER NOT NULL,"
    " stage TEXT NOT NULL) STRICT;"
    "BEGIN;";

static const char finish[] =
    "COMMIT;"
    "CREATE INDEX block_start ON block(device, start);"
    "CREATE INDEX block_stack ON block(stack);"
    "CREATE VIEW live_at_end AS SELECT * FROM block WHERE end IS NULL;"
    "CREATE VIEW live_by_site AS SELECT device, label, kind_guess, count(*) AS blocks,"
    " sum(size) AS bytes FROM block JOIN stack ON stack.id = block.stack WHERE end IS NULL"
    " GROUP BY device, site ORDER BY bytes DESC;";

struct database {
    sqlite3 *db;
    const struct plim_snapshot *s;
    const struct plim_export_window *window;
    sqlite3_stmt *row; /* the statement in use */
    int column;
    struct plim_err *err;
};

static enum plim_status failed(struct database *d)
{
    return plim__fail(d->err, PLIM_E_INTERNAL, "SQLite: %s", sqlite3_errmsg(d->db));
}

static enum plim_status run(struct database *d, const char *sql)
{
    return sqlite3_exec(d->db, sql, NULL, NULL, NULL) == SQLITE_OK ? PLIM_OK : failed(d);
}

static enum plim_status begin(struct database *d, const char *sql)
{
    d->column = 0;
    return sqlite3_prepare_v2(d->db, sql, -1, &d->row, NULL) == SQLITE_OK ? PLIM_OK : failed(d);
}

static void end(struct database *d)
{
    sqlite3_finalize(d->row);
    d->row = NULL;
}

/* Values are bound in order; what cannot be bound shows when the row is written. */
static void put_int(struct database *d, uint64_t v)
{
    sqlite3_bind_int64(d->row, ++d->column, (sqlite3_int64)v);
}

static void put_int_or_null(struct database *d, uint64_t v, bool known)
{
    if (known) {
        put_int(d, v);
    } else {
        sqlite3_bind_null(d->row, ++d->column);
    }
}

static void put_text(struct database *d, struct plim_str s)
{
    int n = s.n > INT32_MAX ? INT32_MAX : (int)s.n;
    sqlite3_bind_text(d->row, ++d->column, s.p, n, SQLITE_TRANSIENT);
}

static void put_interned(struct database *d, uint32_t id)
{
    struct plim_str s = plim_intern_str(&d->s->strings, id);
    put_text(d, s.n > 0 ? s : PLIM_STR(""));
}

static void put_pool(struct database *d, uint16_t pool)
{
    char text[48];
    if (pool >= d->s->pools.n) {
        sqlite3_bind_null(d->row, ++d->column);
        return;
    }
    struct plim_pool_id id = d->s->pools.items[pool];
    (void)snprintf(text, sizeof(text), "%llu,%llu", (unsigned long long)id.a,
                   (unsigned long long)id.b);
    put_text(d, plim_str_from(text));
}

static void put_stream(struct database *d, uint16_t stream)
{
    put_int(d, stream < d->s->streams.n ? (uint64_t)d->s->streams.items[stream] : 0);
}

static enum plim_status write_row(struct database *d)
{
    d->column = 0;
    if (sqlite3_step(d->row) != SQLITE_DONE) {
        return failed(d);
    }
    sqlite3_reset(d->row);
    return PLIM_OK;
}

static enum plim_status add_meta(struct database *d, const char *key, const char *value)
{
    put_text(d, plim_str_from(key));
    put_text(d, plim_str_from(value));
    return write_row(d);
}

static enum plim_status write_meta(struct database *d)
{
    char devices[24];
    (void)snprintf(devices, sizeof(devices), "%zu", d->s->devices.n);
    PLIM_TRY(begin(d, "INSERT INTO meta VALUES(?, ?)"));
    PLIM_TRY(add_meta(d, "schema", "plimsoll.sqlite/" SCHEMA_VERSION));
    PLIM_TRY(add_meta(d, "layout", d->s->layout));
    PLIM_TRY(add_meta(d, "devices", devices));
    if (d->s->settings.conf != PLIM_NO_ID) {
        put_text(d, PLIM_STR("alloc_conf"));
        put_interned(d, d->s->settings.conf);
        PLIM_TRY(write_row(d));
    }
    return PLIM_OK;
}

static enum plim_status write_frames(struct database *d)
{
    PLIM_TRY(begin(d, "INSERT INTO frame VALUES(?, ?, ?, ?)"));
    for (size_t i = 0; i < d->s->stacks.frames.n; i++) {
        const struct plim_frame *f = &d->s->stacks.frames.items[i];
        put_int(d, i);
        put_interned(d, f->name);
        put_interned(d, f->file);
        put_int(d, f->line);
        PLIM_TRY(write_row(d));
    }
    return PLIM_OK;
}

static enum plim_status write_stacks(struct database *d, const struct plim_sites *sites)
{
    struct plim_arena arena;
    enum plim_status st = begin(d, "INSERT INTO stack VALUES(?, ?, ?, ?)");
    plim_arena_init(&arena, 0);
    for (size_t i = 0; st == PLIM_OK && i < d->s->stacks.stacks.n; i++) {
        struct plim_arena_mark mark = plim_arena_mark(&arena);
        uint32_t site = plim_site_of(sites, (uint32_t)i);
        put_int(d, i);
        put_int(d, site);
        put_text(d, plim_str_from(plim_category_text(sites->sites.items[site].category)));
        put_text(d, plim_str_from(plim_site_text(d->s, &sites->sites.items[site], &arena)));
        st = write_row(d);
        plim_arena_rewind(&arena, mark);
    }
    plim_arena_fini(&arena);
    return st;
}

static enum plim_status write_stack_frames(struct database *d)
{
    PLIM_TRY(begin(d, "INSERT INTO stack_frame VALUES(?, ?, ?)"));
    for (size_t i = 0; i < d->s->stacks.stacks.n; i++) {
        size_t n;
        const uint32_t *frames = plim_stacks_frames(&d->s->stacks, (uint32_t)i, &n);
        for (size_t k = 0; k < n; k++) {
            put_int(d, i);
            put_int(d, k);
            put_int(d, frames[k]);
            PLIM_TRY(write_row(d));
        }
    }
    return PLIM_OK;
}

static enum plim_status write_event(struct database *d, uint32_t device, size_t i)
{
    const struct plim_trace *trace = &d->s->devices.items[device].trace;
    const struct plim_event *e = &trace->events.items[i];
    bool oom = e->action == PLIM_ACTION_OOM;
    put_int(d, device);
    put_int(d, i);
    put_text(d, plim_str_from(plim_action_text((enum plim_action)e->action)));
    put_int_or_null(d, e->addr, !oom);
    put_int_or_null(d, e->addr, oom);
    put_int(d, e->size);
    put_int_or_null(d, e->time_us, trace->has_times);
    put_stream(d, e->stream);
    put_pool(d, e->pool);
    put_int_or_null(d, e->stack, e->stack != PLIM_NO_STACK);
    for (int k = 0; k < 2; k++) {
        uint32_t id = e->note >= d->s->notes.n ? PLIM_NO_ID
                      : k == 0                 ? d->s->notes.items[e->note].compile_context
                                               : d->s->notes.items[e->note].user_metadata;
        if (id == PLIM_NO_ID) {
            put_int_or_null(d, 0, false);
        } else {
            put_interned(d, id);
        }
    }
    return write_row(d);
}

static enum plim_status write_block(struct database *d, uint32_t device,
                                    const struct plim_life *life)
{
    put_int(d, device);
    put_int(d, life->addr);
    put_int(d, life->size);
    put_int(d, life->requested);
    put_stream(d, life->stream);
    put_pool(d, life->pool);
    put_int(d, life->start);
    put_int_or_null(d, life->freed, life->freed != PLIM_LIFE_OPEN);
    put_int_or_null(d, life->end, life->end != PLIM_LIFE_OPEN);
    put_int_or_null(d, life->stack, life->stack != PLIM_NO_STACK);
    return write_row(d);
}

/* Whether a life touches the window of its device. */
static bool in_window(const struct database *d, uint32_t start, uint32_t end_)
{
    return d->window->device == PLIM_NO_ID || (start <= d->window->until && end_ > d->window->from);
}

static enum plim_status write_blocks(struct database *d, uint32_t device,
                                     const struct plim_lives *lives)
{
    PLIM_TRY(begin(d, "INSERT INTO block VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
    plim_vec_foreach (life, &lives->before) {
        if (in_window(d, life->start, life->end)) {
            PLIM_TRY(write_block(d, device, life));
        }
    }
    for (uint32_t i = 0; i < lives->trace->events.n; i++) {
        if (lives->trace->events.items[i].action == PLIM_ACTION_ALLOC) {
            struct plim_life life = plim_lives_of_event(lives, i);
            if (in_window(d, life.start, life.end)) {
                PLIM_TRY(write_block(d, device, &life));
            }
        }
    }
    return PLIM_OK;
}

static enum plim_status write_segments(struct database *d, uint32_t device,
                                       const struct plim_lives *lives)
{
    PLIM_TRY(begin(d, "INSERT INTO segment VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)"));
    plim_vec_foreach (life, &lives->segments) {
        if (!in_window(d, life->start, life->end)) {
            continue;
        }
        put_int(d, device);
        put_int(d, life->addr);
        put_int(d, life->size);
        put_stream(d, life->stream);
        put_pool(d, life->pool);
        put_int(d, life->expandable);
        put_int(d, life->start);
        put_int_or_null(d, life->end, life->end != PLIM_LIFE_OPEN);
        put_int_or_null(d, life->stack, life->stack != PLIM_NO_STACK);
        PLIM_TRY(write_row(d));
    }
    return PLIM_OK;
}

static enum plim_status write_events(struct database *d, uint32_t device)
{
    bool whole = d->window->device == PLIM_NO_ID;
    size_t n = d->s->devices.items[device].trace.events.n;
    PLIM_TRY(begin(d, "INSERT INTO event VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
    for (size_t i = whole ? 0 : d->window->from; i < (whole ? n : d->window->until); i++) {
        PLIM_TRY(write_event(d, device, i));
    }
    return PLIM_OK;
}

static enum plim_status write_device(struct database *d, uint32_t device)
{
    struct plim_lives lives;
    PLIM_TRY(plim_lives_read(&d->s->devices.items[device], &lives, d->err));
    enum plim_status st = write_segments(d, device, &lives);
    end(d);
    if (st == PLIM_OK) {
        st = write_blocks(d, device, &lives);
        end(d);
    }
    plim_lives_fini(&lives);
    if (st == PLIM_OK) {
        st = write_events(d, device);
        end(d);
    }
    return st;
}

static enum plim_status write_annotations(struct database *d)
{
    PLIM_TRY(begin(d, "INSERT INTO annotation VALUES(?, ?, ?, ?)"));
    plim_vec_foreach (a, &d->s->annotations) {
        put_int(d, a->device);
        put_interned(d, a->name);
        put_int(d, a->time_us);
        put_text(d, a->end ? PLIM_STR("END") : PLIM_STR("START"));
        PLIM_TRY(write_row(d));
    }
    return PLIM_OK;
}

static enum plim_status write_all(struct database *d, const struct plim_sites *sites)
{
    enum plim_status st;
    PLIM_TRY(run(d, schema));
    st = write_meta(d);
    end(d);
    PLIM_TRY(st);
    st = write_frames(d);
    end(d);
    PLIM_TRY(st);
    st = write_stacks(d, sites);
    end(d);
    PLIM_TRY(st);
    st = write_stack_frames(d);
    end(d);
    PLIM_TRY(st);
    st = write_annotations(d);
    end(d);
    PLIM_TRY(st);
    for (uint32_t i = 0; i < d->s->devices.n; i++) {
        if (d->window->device == PLIM_NO_ID || d->window->device == i) {
            PLIM_TRY(write_device(d, i));
        }
    }
    return run(d, finish);
}

enum plim_status plim_export_sqlite(struct plim_buf *out, const struct plim_snapshot *snapshot,
                                    const struct plim_export_window *window, struct plim_err *err)
{
    struct plim_export_window w;
    struct plim_sites sites;
    struct database d = {.s = snapshot, .window = &w, .err = err};
    PLIM_TRY(plim_export_check(snapshot, window, &w, err));
    PLIM_TRY(plim_sites_build(snapshot, &sites, err));
    enum plim_status st = sqlite3_open(":memory:", &d.db) == SQLITE_OK ? PLIM_OK : failed(&d);
    if (st == PLIM_OK) {
        st = write_all(&d, &sites);
    }
    if (st == PLIM_OK) {
        sqlite3_int64 n = 0;
        unsigned char *bytes = sqlite3_serialize(d.db, "main", &n, 0);
        if (bytes) {
            plim_buf_add(out, (struct plim_str){(const char *)bytes, (size_t)n});
            st = plim_buf_status(out, err);
            sqlite3_free(bytes);
        } else {
            st = plim__fail(err, PLIM_E_NOMEM, "no memory for the database");
        }
    }
    sqlite3_close(d.db);
    plim_sites_fini(&sites);
    return st;
}
