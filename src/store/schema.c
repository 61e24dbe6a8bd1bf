/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tables of the file, and how a file of an earlier version gets them: step i of `steps` brings version i to i + 1, each
 * in a transaction of its own with the version number, so that a crash leaves one version or the other. A step is never
 * changed once it was released. docs/format/history.md describes the tables.
 */

#include "store/store_int.h"

#include "base/num.h"

#include <stdio.h>

static const char *const steps[] = {
    "CREATE TABLE level(step INTEGER PRIMARY KEY, keep INTEGER NOT NULL, done INTEGER NOT NULL) "
    "STRICT;"
    "CREATE TABLE era(start INTEGER PRIMARY KEY, shift INTEGER NOT NULL) STRICT;"
    "CREATE TABLE figure(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;"
    "CREATE TABLE subject(id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL,"
    " labels TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, UNIQUE(kind, key)) "
    "STRICT;"
    "CREATE TABLE second(seq INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;"
    "CREATE TABLE chunk(step INTEGER NOT NULL, start INTEGER NOT NULL, subject INTEGER NOT NULL,"
    " data BLOB NOT NULL, PRIMARY KEY(step, start, subject)) STRICT;"
    "CREATE TABLE event(id INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER NOT NULL,"
    " kind TEXT NOT NULL, subject INTEGER, data TEXT NOT NULL) STRICT;"
    "CREATE INDEX event_time ON event(time);",
};

_Static_assert(PLIM_COUNT_OF(steps) == PLIM_STORE_VERSION, "one step for each version");

static enum plim_status ask_pragma(struct plim_store *store, const char *sql, int64_t *out,
                                   struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL) != SQLITE_OK) {
        return plim__failed(store, err);
    }
    if (plim__step(store, stmt, &st, err)) {
        *out = sqlite3_column_int64(stmt, 0);
    }
    (void)sqlite3_finalize(stmt);
    return st;
}

/* Whose database it is. *version is 0 for an empty file. */
static enum plim_status identify(struct plim_store *store, int64_t *version, struct plim_err *err)
{
    int64_t application = 0, tables = 0;
    PLIM_TRY(ask_pragma(store, "PRAGMA application_id", &application, err));
    PLIM_TRY(ask_pragma(store, "PRAGMA user_version", version, err));
    PLIM_TRY(ask_pragma(store, "SELECT count(*) FROM sqlite_schema", &tables, err));
    if (application != PLIM_STORE_APPLICATION && (application != 0 || tables != 0)) {
        (void)plim__fail(err, PLIM_E_UNSAFE, "'%.150s' is a database of another program",
                         store->path);
        plim__err_hint(err, "name another file for the history");
        return PLIM_E_UNSAFE;
    }
    if (*version > PLIM_STORE_VERSION) {
        (void)plim__fail(err, PLIM_E_UNSUPPORTED,
                         "history '%.120s' has version %lld, this program knows up to %d",
                         store->path, (long long)*version, PLIM_STORE_VERSION);
        plim__err_hint(err, "use the newer plimsoll, or name another file");
        return PLIM_E_UNSUPPORTED;
    }
    if (*version < 0 || (application == PLIM_STORE_APPLICATION && *version == 0 && tables > 0)) {
        return plim__fail(err, PLIM_E_DATA, "history '%.150s': its version is damaged",
                          store->path);
    }
    return PLIM_OK;
}

static enum plim_status migrate(struct plim_store *store, int64_t version, struct plim_err *err)
{
    char sql[64];
    for (; version < PLIM_STORE_VERSION; version++) {
        (void)snprintf(sql, sizeof(sql), "PRAGMA user_version = %lld", (long long)version + 1);
        enum plim_status st = plim__pragma(store, "BEGIN IMMEDIATE", err);
        st = st == PLIM_OK ? plim__pragma(store, steps[version], err) : st;
        st = st == PLIM_OK ? plim__pragma(store, sql, err) : st;
        st = st == PLIM_OK ? plim__pragma(store, "COMMIT", err) : st;
        if (st != PLIM_OK) {
            plim__rollback(store);
            return st;
        }
    }
    return PLIM_OK;
}

enum plim_status plim__schema(struct plim_store *store, struct plim_err *err)
{
    int64_t version = 0;
    PLIM_TRY(identify(store, &version, err));
    if (store->read_only) {
        if (version < PLIM_STORE_VERSION) {
            return plim__fail(
                err, PLIM_E_UNSUPPORTED,
                "history '%.120s' has version %lld; plimsoll watch brings it up to %d", store->path,
                (long long)version, PLIM_STORE_VERSION);
        }
        return PLIM_OK;
    }
    PLIM_TRY(plim__pragma(store,
                          version == 0
                              ? "PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL;"
                                "PRAGMA application_id = 1349282157;"
                              : "",
                          err));
    PLIM_TRY(plim__pragma(store,
                          "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                          "PRAGMA wal_autocheckpoint = 256",
                          err));
    return migrate(store, version, err);
}
