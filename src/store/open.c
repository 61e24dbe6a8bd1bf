/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing, one writer at a time, and setting a damaged database aside. */

#include "store/store_int.h"

#include "base/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ASIDE_MARK  ".damaged-"
#define ASIDE_KEPT  2u
#define FIGURES_MAX 1024u
#define HEAD_BYTES  100u /* of an SQLite file, https://sqlite.org/fileformat2.html */
#define MARK_AT     68u  /* application_id in it, big-endian */

static const struct plim_store_level default_levels[] = {
    {UINT64_C(1000000000), UINT64_C(86400) * 1000000000},
    {UINT64_C(10) * 1000000000, UINT64_C(7) * 86400 * 1000000000},
    {UINT64_C(60) * 1000000000, UINT64_C(92) * 86400 * 1000000000},
    {UINT64_C(3600) * 1000000000, UINT64_C(730) * 86400 * 1000000000},
};

/* ---- options ---- */

static enum plim_status wrong_levels(const char *why, struct plim_err *err)
{
    return plim__fail(err, PLIM_E_USAGE, "levels of the history: %s", why);
}

static enum plim_status read_levels(const struct plim_store_level *levels, size_t n,
                                    struct plim__level *out, struct plim_err *err)
{
    if (n == 0 || n > PLIM_STORE_LEVELS) {
        return wrong_levels("there may be one to six", err);
    }
    for (size_t i = 0; i < n; i++) {
        struct plim__level level = {.step = (int64_t)(levels[i].step_ns / 1000000),
                                    .keep = (int64_t)(levels[i].keep_ns / 1000000)};
        level.span = level.step * PLIM_STORE_SPAN;
        if (level.step <= 0 || level.step > 86400000 || levels[i].step_ns % 10000000 != 0) {
            return wrong_levels("a step is a multiple of 10 ms, and at most a day", err);
        }
        if (i > 0 && (level.step <= out[i - 1].step || level.step % out[i - 1].step != 0)) {
            return wrong_levels("each step is a multiple of the one before", err);
        }
        if (i > 0 && out[i - 1].keep < 2 * level.span) {
            return wrong_levels("one is kept for less than 720 steps of the next", err);
        }
        out[i] = level;
    }
    return PLIM_OK;
}

enum plim_status plim_store_levels_check(const struct plim_store_level *levels, size_t n,
                                         struct plim_err *err)
{
    struct plim__level ignored[PLIM_STORE_LEVELS];
    return read_levels(levels, n, ignored, err);
}

enum plim_status plim_store_limit_check(uint64_t max_bytes, struct plim_err *err)
{
    return max_bytes >= PLIM_STORE_MIN_BYTES && max_bytes <= INT64_MAX
               ? PLIM_OK
               : plim__fail(err, PLIM_E_USAGE, "a history needs at least %llu MiB",
                            (unsigned long long)(PLIM_STORE_MIN_BYTES >> 20));
}

static enum plim_status set_options(struct plim_store *store, const struct plim_store_options *o,
                                    struct plim_err *err)
{
    store->read_only = o->read_only;
    store->max_bytes = o->max_bytes != 0 ? o->max_bytes : PLIM_STORE_MAX_BYTES;
    store->max_subjects = o->max_subjects != 0 ? o->max_subjects : 1024;
    store->figures = o->figures;
    store->n_figures = o->n_figures;
    PLIM_TRY(plim_store_limit_check(store->max_bytes, err));
    if (o->n_figures > FIGURES_MAX) {
        return plim__fail(err, PLIM_E_USAGE, "more than %u figures", FIGURES_MAX);
    }
    store->figure_id = calloc(o->n_figures + 1, sizeof(*store->figure_id));
    if (store->figure_id == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the history");
    }
    store->n_levels = o->levels != NULL ? o->n_levels : PLIM_COUNT_OF(default_levels);
    return read_levels(o->levels != NULL ? o->levels : default_levels, store->n_levels,
                       store->level, err);
}

/* ---- one writer ---- */

static enum plim_status take_lock(struct plim_store *store, struct plim_err *err)
{
    char path[4096], text[24] = "";
    if ((size_t)snprintf(path, sizeof(path), "%s.lock", store->path) >= sizeof(path)) {
        return plim__fail(err, PLIM_E_USAGE, "the path of the history is too long");
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        return plim__fail_errno(err, errno == ENOENT ? PLIM_E_NOINPUT : PLIM_E_CREATE, errno,
                                "cannot make '%.150s'", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        ssize_t n = read(fd, text, sizeof(text) - 1);
        text[n > 0 ? strcspn(text, "\n") : 0] = '\0';
        (void)plim__fail(err, PLIM_E_OS, "history '%.120s' is written by process %s already",
                         store->path, text[0] != '\0' ? text : "(unknown)");
        plim__err_hint(err, "stop it, or name another file for the history");
        (void)close(fd);
        return PLIM_E_OS;
    }
    int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) == 0) { /* the number is for people: a full disk does not matter here */
        ssize_t written = pwrite(fd, text, (size_t)n, 0);
        (void)written;
    }
    store->lock_fd = fd;
    return PLIM_OK;
}

/* ---- the database ---- */

/* Levels of the options into the file; steps that are no longer wanted leave with their chunks. Rows of the tail that were
 * kept for another finest step leave too. */
static enum plim_status settle_levels(struct plim_store *store, struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    int64_t gone[PLIM_STORE_LEVELS * 2], finest = 0;
    size_t n_gone = 0;
    sqlite3_stmt *stmt = plim__sql(store, PLIM__SQL_LEVELS);
    while (plim__step(store, stmt, &st, err)) {
        int64_t step = sqlite3_column_int64(stmt, 0);
        bool wanted = false;
        finest = finest == 0 ? step : finest;
        for (size_t i = 0; i < store->n_levels; i++) {
            wanted = wanted || store->level[i].step == step;
        }
        if (!wanted && n_gone < PLIM_COUNT_OF(gone)) {
            gone[n_gone++] = step;
        }
    }
    PLIM_TRY(st);
    if (finest != store->level[0].step) {
        PLIM_TRY(plim__run(store, PLIM__SQL_CUT_ROWS, 0, 0, 0, err));
    }
    for (size_t i = 0; i < n_gone; i++) {
        PLIM_TRY(plim__run(store, PLIM__SQL_DROP_CHUNKS, gone[i], INT64_MAX, 0, err));
        PLIM_TRY(plim__run(store, PLIM__SQL_DROP_LEVEL, gone[i], 0, 0, err));
    }
    for (size_t i = 0; i < store->n_levels; i++) {
        PLIM_TRY(plim__run(store, PLIM__SQL_PUT_LEVEL, store->level[i].step, store->level[i].keep,
                           0, err));
    }
    return PLIM_OK;
}

static enum plim_status connect(struct plim_store *store, const char *name, int flags,
                                struct plim_err *err)
{
    if (sqlite3_open_v2(name, &store->db, flags | SQLITE_OPEN_NOMUTEX, store->vfs) != SQLITE_OK) {
        if (store->db == NULL) {
            return plim__fail(err, PLIM_E_NOMEM, "no memory for the database");
        }
        return plim__failed(store, err);
    }
    (void)sqlite3_extended_result_codes(store->db, 1);
    (void)sqlite3_busy_timeout(store->db, PLIM_STORE_BUSY_MS);
    return plim__pragma(store, "PRAGMA cache_size = -512; PRAGMA trusted_schema = OFF", err);
}

static enum plim_status open_writer(struct plim_store *store, struct plim_err *err)
{
    PLIM_TRY(connect(store, store->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, err));
    PLIM_TRY(plim__schema(store, err));
    PLIM_TRY(plim__apply_limit(store, err));
    PLIM_TRY(settle_levels(store, err));
    return plim__recall(store, err);
}

/* A folder that may not be written, and nobody is writing: the file stands still and can be read as it is. */
static enum plim_status connect_still(struct plim_store *store, struct plim_err *err)
{
    struct plim_buf name = {0};
    plim_buf_text(&name, "file:");
    for (const char *p = store->path; *p != '\0'; p++) {
        plim_buf_printf(&name, strchr("?#%", *p) != NULL ? "%%%02x" : "%c", (unsigned char)*p);
    }
    plim_buf_text(&name, "?immutable=1");
    enum plim_status st = plim_buf_status(&name, err);
    if (st == PLIM_OK) {
        st = connect(store, name.p, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, err);
    }
    plim_buf_fini(&name);
    return st;
}

static enum plim_status open_reader(struct plim_store *store, struct plim_err *err)
{
    struct stat info;
    if (stat(store->path, &info) != 0 || !S_ISREG(info.st_mode)) {
        return plim__fail(err, PLIM_E_NOINPUT, "there is no history '%.150s'", store->path);
    }
    store->inode = info.st_ino;
    enum plim_status st = connect(store, store->path, SQLITE_OPEN_READONLY, err);
    st = st == PLIM_OK ? plim__schema(store, err) : st;
    if (st == PLIM_E_IO && plim__file_bytes(store, "-wal") == 0) {
        plim__database_close(store);
        st = connect_still(store, err);
        st = st == PLIM_OK ? plim__schema(store, err) : st;
    }
    return st == PLIM_OK ? plim__recall(store, err) : st;
}

enum plim_status plim__database_open(struct plim_store *store, struct plim_err *err)
{
    enum plim_status st = store->read_only ? open_reader(store, err) : open_writer(store, err);
    if (st != PLIM_OK) {
        plim__database_close(store);
    }
    return st;
}

void plim__database_close(struct plim_store *store)
{
    plim__sql_fini(store);
    (void)sqlite3_close(store->db);
    store->db = NULL;
    store->stale = true;
}

/* ---- setting aside ---- */

static int newest_first(const void *a, const void *b)
{
    return strcmp(*(char *const *)b, *(char *const *)a);
}

/* Keep the newest few of the databases that were set aside: they count as much as the history itself. */
static void drop_old_asides(const char *path)
{
    char in[4096], prefix[300];
    PLIM_VEC(char *) names = {0};
    const char *slash = strrchr(path, '/');
    (void)snprintf(in, sizeof(in), "%.*s/", slash != NULL ? (int)(slash - path) : 1,
                   slash != NULL ? path : ".");
    int n = snprintf(prefix, sizeof(prefix), "%.255s" ASIDE_MARK, slash != NULL ? slash + 1 : path);
    DIR *dir = opendir(in);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): ours
        if (strncmp(entry->d_name, prefix, (size_t)n) == 0 &&
            strstr(entry->d_name, "-wal") == NULL) {
            char *name = strdup(entry->d_name);
            if (name != NULL && plim_vec_push(&names, NULL, name) != PLIM_OK) {
                free(name);
            }
        }
    }
    if (names.n > 0) {
        qsort(names.items, names.n, sizeof(*names.items), newest_first);
    }
    for (size_t i = 0; i < names.n; i++) {
        char old[8192];
        if (i >= ASIDE_KEPT) {
            (void)snprintf(old, sizeof(old), "%s/%s", in, names.items[i]);
            (void)unlink(old);
            (void)snprintf(old, sizeof(old), "%s/%s-wal", in, names.items[i]);
            (void)unlink(old);
        }
        free(names.items[i]);
    }
    plim_vec_fini(&names);
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

static enum plim_status set_aside(struct plim_store *store, struct plim_err *err)
{
    char from[4200], to[4200], date[32];
    struct tm tm;
    time_t now = time(NULL);
    (void)strftime(date, sizeof(date), "%Y%m%dT%H%M%SZ", gmtime_r(&now, &tm));
    (void)snprintf(to, sizeof(to), "%s" ASIDE_MARK "%s", store->path, date);
    for (int i = 1; access(to, F_OK) == 0 && i < 1000; i++) {
        (void)snprintf(to, sizeof(to), "%s" ASIDE_MARK "%s.%03d", store->path, date, i);
    }
    if (rename(store->path, to) != 0) {
        return plim__fail_errno(err, PLIM_E_IO, errno, "cannot set '%.150s' aside", store->path);
    }
    (void)snprintf(store->state.aside, sizeof(store->state.aside), "%.255s", to);
    (void)snprintf(from, sizeof(from), "%s-wal", store->path);
    (void)strncat(to, "-wal", sizeof(to) - strlen(to) - 1);
    (void)rename(from, to);
    (void)snprintf(from, sizeof(from), "%s-shm", store->path);
    (void)unlink(from);
    store->state.set_aside++;
    drop_old_asides(store->path);
    return PLIM_OK;
}

/*
 * A file of another kind, which somebody named by mistake: it is neither set aside nor removed later. A
 * history that was damaged still has most of SQLite's first bytes, or our mark in its head, or nothing but
 * zeros there.
 */
static enum plim_status refuse_foreign(const char *path, struct plim_err *err)
{
    static const unsigned char magic[16] = "SQLite format 3";
    unsigned char head[HEAD_BYTES] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, head, sizeof(head)) : 0;
    size_t alike = 0, zeros = 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    for (size_t i = 0; i < sizeof(magic); i++) {
        alike += head[i] == magic[i];
        zeros += head[i] == 0;
    }
    uint32_t mark = (uint32_t)head[MARK_AT] << 24 | (uint32_t)head[MARK_AT + 1] << 16 |
                    (uint32_t)head[MARK_AT + 2] << 8 | head[MARK_AT + 3];
    if (got < (ssize_t)sizeof(magic) || alike >= sizeof(magic) / 2 || zeros == sizeof(magic) ||
        mark == PLIM_STORE_APPLICATION) {
        return PLIM_OK;
    }
    (void)plim__fail(err, PLIM_E_UNSAFE, "'%.150s' is no history, and is left as it is", path);
    plim__err_hint(err, "name another file for the history");
    return PLIM_E_UNSAFE;
}

enum plim_status plim__begin_anew(struct plim_store *store, struct plim_err *err)
{
    plim__database_close(store);
    PLIM_TRY(set_aside(store, err));
    store->eras.n = 0;
    store->last = INT64_MIN;
    for (size_t i = 0; i < store->n_levels; i++) {
        store->level[i].done = 0;
    }
    return plim__database_open(store, err);
}

/* ---- the store ---- */

enum plim_status plim_store_open(const char *path, const struct plim_store_options *options,
                                 struct plim_store **out, struct plim_err *err)
{
    struct plim_store *store = calloc(1, sizeof(*store));
    if (store == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for the history");
    }
    store->lock_fd = -1;
    store->last = INT64_MIN;
    store->path = strdup(path);
    store->vfs = options->vfs != NULL ? strdup(options->vfs) : NULL;
    enum plim_status st = store->path != NULL && (options->vfs == NULL || store->vfs != NULL)
                              ? set_options(store, options, err)
                              : plim__fail(err, PLIM_E_NOMEM, "no memory for the history");
    if (st == PLIM_OK && !store->read_only) {
        st = refuse_foreign(path, err);
    }
    if (st == PLIM_OK && !store->read_only) {
        st = take_lock(store, err);
    }
    if (st == PLIM_OK) {
        st = plim__database_open(store, err);
        if (st == PLIM_E_DATA && !store->read_only) {
            st = plim__begin_anew(store, err);
        }
    }
    if (st != PLIM_OK) {
        plim_store_close(store);
        return st;
    }
    *out = store;
    return PLIM_OK;
}

void plim_store_close(struct plim_store *store)
{
    if (store == NULL) {
        return;
    }
    plim__database_close(store);
    if (store->lock_fd >= 0) {
        (void)close(store->lock_fd);
    }
    plim_vec_fini(&store->eras);
    plim__tail_fini(&store->tail);
    plim_map_fini(&store->known);
    plim_vec_fini(&store->known_list);
    plim__packer_fini(&store->packer);
    plim__chunk_fini(&store->chunk);
    plim_buf_fini(&store->row);
    plim_vec_fini(&store->cells);
    free(store->figure_id);
    free(store->path);
    free(store->vfs);
    free(store);
}
