/* SPDX-License-Identifier: Apache-2.0 */
/* Statements, their values and their errors. Codes of SQLite become statuses here and nowhere else. */

#include "store/store_int.h"

#include <stdio.h>
#include <unistd.h>

static const char *const texts[] = {
// NOLINTNEXTLINE(bugprone-suspicious-missing-comma): rows of the table have several lines
#define PLIM__X(name, sql) sql,
    PLIM__SQL_MAP(PLIM__X)
#undef PLIM__X
};

sqlite3_stmt *plim__sql(struct plim_store *store, enum plim__sql which)
{
    sqlite3_stmt **stmt = &store->sql[which];
    if (*stmt == NULL) {
        if (sqlite3_prepare_v3(store->db, texts[which], -1, SQLITE_PREPARE_PERSISTENT, stmt,
                               NULL) != SQLITE_OK) {
            *stmt = NULL;
        }
        return *stmt;
    }
    (void)sqlite3_reset(*stmt);
    (void)sqlite3_clear_bindings(*stmt);
    return *stmt;
}

void plim__sql_fini(struct plim_store *store)
{
    for (size_t i = 0; i < PLIM__SQL_COUNT; i++) {
        (void)sqlite3_finalize(store->sql[i]);
        store->sql[i] = NULL;
    }
}

static enum plim_store_fault fault_of(int code)
{
    switch (code & 0xff) {
    case SQLITE_OK:
        return PLIM_STORE_NONE;
    case SQLITE_FULL:
        return PLIM_STORE_FULL;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
        return PLIM_STORE_LOCKED;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR: /* of statements that never change: the tables are not what they must be */
    case SQLITE_SCHEMA:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
        return PLIM_STORE_DAMAGED;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_CANTOPEN:
        return PLIM_STORE_READ_ONLY;
    case SQLITE_IOERR:
        return code == SQLITE_IOERR_CORRUPTFS ? PLIM_STORE_DAMAGED : PLIM_STORE_IO;
    default:
        return PLIM_STORE_OTHER;
    }
}

static enum plim_status status_of(int code, enum plim_store_fault fault)
{
    if ((code & 0xff) == SQLITE_NOMEM || code == SQLITE_IOERR_NOMEM) {
        return PLIM_E_NOMEM;
    }
    return fault == PLIM_STORE_DAMAGED ? PLIM_E_DATA : PLIM_E_IO;
}

enum plim_status plim__failed(struct plim_store *store, struct plim_err *err)
{
    int code = sqlite3_extended_errcode(store->db);
    enum plim_store_fault fault = code == SQLITE_OK ? PLIM_STORE_OTHER : fault_of(code);
    if (code == SQLITE_READONLY && !store->read_only && access(store->path, W_OK) == 0) {
        fault = PLIM_STORE_DAMAGED; /* a writable file whose head says that it is not */
    }
    store->state.fault = fault;
    (void)snprintf(store->state.why, sizeof(store->state.why), "%s", sqlite3_errmsg(store->db));
    plim__err_set(err, status_of(code, fault), "history '%.120s': %s: %.90s", store->path,
                  plim_store_fault_text(fault), store->state.why);
    return status_of(code, fault);
}

bool plim__step(struct plim_store *store, sqlite3_stmt *stmt, enum plim_status *st,
                struct plim_err *err)
{
    int code = stmt != NULL ? sqlite3_step(stmt) : SQLITE_ERROR;
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        *st = plim__failed(store, err);
    }
    if (code != SQLITE_ROW && stmt != NULL) {
        (void)sqlite3_reset(stmt); /* a reader's snapshot ends with its statements */
    }
    return code == SQLITE_ROW;
}

enum plim_status plim__run(struct plim_store *store, enum plim__sql which, int64_t a, int64_t b,
                           int64_t c, struct plim_err *err)
{
    int64_t ignored;
    bool found;
    return plim__ask(store, which, PLIM__ARGS(a, b, c), &ignored, &found, err);
}

enum plim_status plim__ask(struct plim_store *store, enum plim__sql which, const int64_t *values,
                           int64_t *out, bool *found, struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    sqlite3_stmt *stmt = plim__sql(store, which);
    int n = stmt != NULL ? sqlite3_bind_parameter_count(stmt) : 0;
    for (int i = 0; i < n && i < 3; i++) {
        (void)sqlite3_bind_int64(stmt, i + 1, values[i]);
    }
    *found = plim__step(store, stmt, &st, err);
    if (*found) {
        *found = sqlite3_column_type(stmt, 0) != SQLITE_NULL;
        *out = sqlite3_column_int64(stmt, 0);
        (void)sqlite3_reset(stmt);
    }
    return st;
}

enum plim_status plim__pragma(struct plim_store *store, const char *sql, struct plim_err *err)
{
    return sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK ? PLIM_OK
                                                                       : plim__failed(store, err);
}

void plim__rollback(struct plim_store *store)
{
    for (size_t i = 0; i < PLIM__SQL_COUNT; i++) {
        if (store->sql[i] != NULL) {
            (void)sqlite3_reset(store->sql[i]);
        }
    }
    if (store->db != NULL && !sqlite3_get_autocommit(store->db)) {
        (void)sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
}

void plim__bind_text(sqlite3_stmt *stmt, int at, const char *text)
{
    (void)sqlite3_bind_text(stmt, at, text, -1, SQLITE_STATIC);
}

const char *plim__column_text(sqlite3_stmt *stmt, int at)
{
    const unsigned char *text = sqlite3_column_text(stmt, at);
    return text != NULL ? (const char *)text : "";
}

struct plim_str plim__column_bytes(sqlite3_stmt *stmt, int at)
{
    const void *p = sqlite3_column_blob(stmt, at);
    int n = sqlite3_column_bytes(stmt, at);
    return (struct plim_str){p != NULL ? p : "", p != NULL && n > 0 ? (size_t)n : 0};
}
