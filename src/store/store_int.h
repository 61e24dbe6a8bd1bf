/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_STORE_STORE_INT_H
#define PLIM_STORE_STORE_INT_H

/*
 * Inside the store. Times are ledger milliseconds ("ms") unless they say otherwise: the wall clock plus the shift of
 * the era, so that they only ever rise.
 *
 *   span    the stretch of one chunk: 360 steps of its level, aligned to multiples of itself
 *   done    of a level: everything before it is packed in this level's chunks
 *   era     a stretch of time with one shift; a new one begins when the wall clock was set
 *
 * The finest level is packed from the tail, each other level from the chunks of the level before it. done of a level is
 * therefore never after done of the level before.
 */

#include "store/chunk.h"
#include "store/store.h"
#include "store/tail.h"

#include <sqlite3.h>

#define PLIM_STORE_APPLICATION 0x506c696d /* "Plim" */
#define PLIM_STORE_VERSION     1
#define PLIM_STORE_SPAN        360  /* steps of a chunk */
#define PLIM_STORE_BUSY_MS     2000 /* how long another program's lock is waited for */
#define PLIM_STORE_TICKS       10   /* of a step: times are kept so exactly */

/* X(NAME, SQL): every statement but those of migrations and pragmas. */
#define PLIM__SQL_MAP(X)                                                                           \
    X(BEGIN, "BEGIN")                                                                              \
    X(BEGIN_WRITE, "BEGIN IMMEDIATE")                                                              \
    X(COMMIT, "COMMIT")                                                                            \
    X(LEVELS, "SELECT step, keep, done FROM level ORDER BY step")                                  \
    X(PUT_LEVEL, "INSERT INTO level(step, keep, done) VALUES(?1, ?2, ?3)"                          \
                 " ON CONFLICT(step) DO UPDATE SET keep = ?2")                                     \
    X(SET_DONE, "UPDATE level SET done = ?2 WHERE step = ?1")                                      \
    X(ERAS, "SELECT start, shift FROM era ORDER BY start")                                         \
    X(PUT_ERA, "INSERT OR REPLACE INTO era(start, shift) VALUES(?1, ?2)")                          \
    X(DROP_ERAS, "DELETE FROM era WHERE start < (SELECT max(start) FROM era WHERE start <= ?1)")   \
    X(FIGURES, "SELECT id, name FROM figure ORDER BY id")                                          \
    X(FIGURE_ID, "SELECT id FROM figure WHERE name = ?1")                                          \
    X(PUT_FIGURE, "INSERT INTO figure(name) VALUES(?1) RETURNING id")                              \
    X(SUBJECT_ID, "SELECT id, labels FROM subject WHERE kind = ?1 AND key = ?2")                   \
    X(PUT_SUBJECT, "INSERT INTO subject(kind, key, labels, first, last)"                           \
                   " VALUES(?1, ?2, ?3, ?4, ?4) RETURNING id")                                     \
    X(SET_LABELS, "UPDATE subject SET labels = ?2 WHERE id = ?1")                                  \
    X(SET_LAST, "UPDATE subject SET last = max(last, ?2) WHERE id = ?1")                           \
    X(SUBJECTS, "SELECT id, kind, key, labels, first, last FROM subject ORDER BY kind, first, id") \
    X(LIFETIME, "SELECT first, last FROM subject WHERE id = ?1")                                   \
    X(ROWS, "SELECT seq, data FROM second ORDER BY seq")                                           \
    X(PUT_ROW, "INSERT INTO second(seq, data) VALUES(?1, ?2)")                                     \
    X(CUT_ROWS, "DELETE FROM second WHERE seq >= ?1")                                              \
    X(PUT_CHUNK,                                                                                   \
      "INSERT OR REPLACE INTO chunk(step, start, subject, data) VALUES(?1, ?2, ?3, ?4)")           \
    X(CHUNK, "SELECT data FROM chunk WHERE step = ?1 AND start = ?2 AND subject = ?3")             \
    X(CHUNK_SUBJECTS, "SELECT subject, count(*) AS n FROM chunk WHERE step = ?1 AND start >= ?2"   \
                      " AND start < ?3 GROUP BY subject ORDER BY n DESC, subject LIMIT ?4")        \
    X(COUNT_SUBJECTS, "SELECT count(DISTINCT subject) FROM chunk WHERE step = ?1 AND start >= ?2"  \
                      " AND start < ?3")                                                           \
    X(FIRST_CHUNK, "SELECT min(start) FROM chunk WHERE step = ?1")                                 \
    X(NEXT_CHUNK, "SELECT min(start) FROM chunk WHERE step = ?1 AND start >= ?2")                  \
    X(DROP_LEVEL, "DELETE FROM level WHERE step = ?1")                                             \
    X(DROP_CHUNKS, "DELETE FROM chunk WHERE step = ?1 AND start < ?2")                             \
    X(DROP_SUBJECTS,                                                                               \
      "DELETE FROM subject WHERE last < ?1 AND id NOT IN (SELECT subject FROM chunk)"              \
      " AND id NOT IN (SELECT subject FROM event WHERE subject IS NOT NULL)")                      \
    X(PUT_EVENT, "INSERT INTO event(time, kind, subject, data) VALUES(?1, ?2, ?3, ?4)")            \
    X(EVENTS, "SELECT id, time, kind, subject, data FROM (SELECT * FROM event WHERE time >= ?1"    \
              " AND time < ?2 AND (?3 IS NULL OR kind = ?3) AND (?4 = 0 OR subject = ?4)"          \
              " AND id > ?5 ORDER BY time DESC, id DESC LIMIT ?6) ORDER BY time, id")              \
    X(DROP_EVENTS, "DELETE FROM event WHERE time < ?1")                                            \
    X(CROP_EVENTS, "DELETE FROM event WHERE id <= (SELECT max(id) FROM event) - ?1")               \
    X(PAGES, "PRAGMA page_count")                                                                  \
    X(FREE_PAGES, "PRAGMA freelist_count")

enum plim__sql {
#define PLIM__X(name, sql) PLIM__SQL_##name,
    PLIM__SQL_MAP(PLIM__X)
#undef PLIM__X
    PLIM__SQL_COUNT
};

struct plim__level {
    int64_t step, keep, span;
    int64_t done;
};

struct plim__era {
    int64_t start; /* ledger */
    int64_t shift; /* ledger = wall + shift */
};

/* A subject that was written lately. */
struct plim__known {
    uint32_t id;
    uint64_t labels; /* hash of them */
};

struct plim_store {
    sqlite3 *db;
    sqlite3_stmt *sql[PLIM__SQL_COUNT]; /* prepared when first used */
    char *path, *vfs;                   /* owned */
    const char *const *figures;         /* of the caller */
    size_t n_figures;
    uint16_t *figure_id; /* owned, [n_figures]: id in the file, 0 not asked yet */
    struct plim__level level[PLIM_STORE_LEVELS];
    size_t n_levels;
    uint64_t max_bytes;
    uint32_t max_subjects;
    bool read_only;
    uint64_t inode;       /* readers: of the file that is open */
    bool stale;           /* what is remembered of the file must be read again */
    uint32_t since_aside; /* calls of put since a database was set aside */
    int lock_fd;          /* of PATH.lock; -1 none */
    PLIM_VEC(struct plim__era) eras;
    struct plim__tail tail;
    int64_t seq;           /* of the next row of the tail */
    int64_t last;          /* newest time, also of what is packed; INT64_MIN none */
    int64_t swept;         /* when subjects that nothing refers to were last looked for */
    uint64_t last_mono_ns; /* with it, of this run; 0 none */
    struct plim_map known; /* hash of kind and key -> index into known_list */
    PLIM_VEC(struct plim__known) known_list;
    struct plim__packer packer;
    struct plim__chunk chunk;
    struct plim_buf row; /* scratch */
    PLIM_VEC(struct plim_cell) cells;
    struct plim_store_state state;
};

static inline int64_t plim__tick(const struct plim_store *store)
{
    return store->level[0].step / PLIM_STORE_TICKS;
}

/* Whether a time of the file can be one. */
static inline bool plim__possible(int64_t time)
{
    return time >= 0 && time <= PLIM_STORE_TIME_MAX;
}

/* Multiple of `unit` at or below t; both may be negative times. */
static inline int64_t plim__floor_to(int64_t t, int64_t unit)
{
    int64_t rest = t % unit;
    return t - (rest < 0 ? rest + unit : rest);
}

/* ---- sql.c ---- */

/** plim__sql() - a statement, reset and without values; NULL: see the database's error. */
sqlite3_stmt *plim__sql(struct plim_store *store, enum plim__sql which);

/** plim__failed() - the status of the database's last error; notes the fault in the state. */
enum plim_status plim__failed(struct plim_store *store, struct plim_err *err);

/** plim__run() - one statement with up to three whole numbers, no answer. */
PLIM_MUST_USE enum plim_status plim__run(struct plim_store *store, enum plim__sql which, int64_t a,
                                         int64_t b, int64_t c, struct plim_err *err);

/** plim__ask() - its one number; *found is false for no row or NULL. */
#define PLIM__ARGS(a, b, c) ((const int64_t[]){a, b, c})
PLIM_MUST_USE enum plim_status plim__ask(struct plim_store *store, enum plim__sql which,
                                         const int64_t *values, int64_t *out, bool *found,
                                         struct plim_err *err);

/** plim__step() - true: there is a row. An error is left in *st. */
bool plim__step(struct plim_store *store, sqlite3_stmt *stmt, enum plim_status *st,
                struct plim_err *err);

PLIM_MUST_USE enum plim_status plim__pragma(struct plim_store *store, const char *sql,
                                            struct plim_err *err);
void plim__rollback(struct plim_store *store);
void plim__sql_fini(struct plim_store *store);
void plim__bind_text(sqlite3_stmt *stmt, int at, const char *text);
const char *plim__column_text(sqlite3_stmt *stmt, int at); /* never NULL; borrowed */
struct plim_str plim__column_bytes(sqlite3_stmt *stmt, int at);

/* ---- open.c, schema.c ---- */

/** plim__apply_limit() - have SQLite keep to max_bytes. A file that is larger already stays so until it is made
 * smaller. */
PLIM_MUST_USE enum plim_status plim__apply_limit(struct plim_store *store, struct plim_err *err);

/** plim__database_open()/close() - the file of `store`, with its schema brought up to date. */
PLIM_MUST_USE enum plim_status plim__database_open(struct plim_store *store, struct plim_err *err);
void plim__database_close(struct plim_store *store);

/** plim__begin_anew() - set the damaged database aside and open an empty one. */
PLIM_MUST_USE enum plim_status plim__begin_anew(struct plim_store *store, struct plim_err *err);

/** plim__schema() - check whose database it is; make or migrate its tables (not when read only). */
PLIM_MUST_USE enum plim_status plim__schema(struct plim_store *store, struct plim_err *err);

/** plim__recall() - read levels, eras and tail from the file. Within a transaction when other processes write. */
PLIM_MUST_USE enum plim_status plim__recall(struct plim_store *store, struct plim_err *err);

/* ---- eras.c ---- */

struct plim__moment {
    int64_t time;  /* INT64_MIN: the same tenth of a step again, leave it out */
    int64_t shift; /* of its era */
    bool new_era;
};

/** plim__ledger_moment() - when a batch is, in the ledger. Pure. */
struct plim__moment plim__ledger_moment(const struct plim_store *store, uint64_t time_ns,
                                        uint64_t mono_ns);

/** plim__shift_at() - of the era of a ledger time. */
int64_t plim__shift_at(const struct plim_store *store, int64_t time);

/** plim__wall_ns() - wall time of a ledger time, 0 when it is before 1970. */
uint64_t plim__wall_ns(const struct plim_store *store, int64_t time);

/** plim__era_range() - the ledger times of era i that lie in wall milliseconds [from, to); false: none. */
bool plim__era_range(const struct plim_store *store, size_t i, int64_t from, int64_t to,
                     int64_t *ledger_from, int64_t *ledger_to);

/* ---- rows.c ---- */

/** plim__rows_scan() - replay the tail's rows into `tail`, which is reset first; `take` (nullable) sees it after each.
 * A damaged row ends the tail: *bad_seq is its number, else -1. Errors: PLIM_E_NOMEM, of the database. */
PLIM_MUST_USE enum plim_status
plim__rows_scan(struct plim_store *store, struct plim__tail *tail,
                void (*take)(void *self, const struct plim__tail *tail), void *self,
                int64_t *bad_seq, int64_t *next_seq, struct plim_err *err);

/** plim__level_starts() - where each level begins: its first chunk, but not before the first batch; INT64_MAX: it has
 * none. */
PLIM_MUST_USE enum plim_status plim__level_starts(struct plim_store *store,
                                                  int64_t starts[PLIM_STORE_LEVELS],
                                                  struct plim_err *err);

/* ---- pack.c, room.c ---- */

/** plim__pack() - the tail into chunks of the finest level, and whole spans of each level into the next. */
PLIM_MUST_USE enum plim_status plim__pack(struct plim_store *store, struct plim_err *err);

/** plim__make_room() - drop what is older than its level is kept, then the oldest until the size fits; give pages
 * back. @full: there was not enough for a call: make more. */
PLIM_MUST_USE enum plim_status plim__make_room(struct plim_store *store, bool full,
                                               struct plim_err *err);

/** plim__log_fits() - empty the write-ahead log when it is long; PLIM_E_IO when a reader prevents it and it may not grow
 * further. */
PLIM_MUST_USE enum plim_status plim__log_fits(struct plim_store *store, struct plim_err *err);

/** plim__file_bytes() - size of PATH and a suffix, 0 when it is not there. plim__log_limit() - most bytes of the log. */
uint64_t plim__file_bytes(const struct plim_store *store, const char *suffix);
uint64_t plim__log_limit(const struct plim_store *store);

/* ---- query.c ---- */

/** plim__reading() - run `body` with one view of the file, whatever is written meanwhile. */
PLIM_MUST_USE enum plim_status
plim__reading(struct plim_store *store, enum plim_status (*body)(void *self, struct plim_err *err),
              void *self, struct plim_err *err);

/** plim__extent_ns() - wall times of the first and the last point, 0 when there are none. */
PLIM_MUST_USE enum plim_status plim__extent_ns(struct plim_store *store, uint64_t *first,
                                               uint64_t *last, struct plim_err *err);

#endif
