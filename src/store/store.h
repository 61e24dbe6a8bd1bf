/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_STORE_STORE_H
#define PLIM_STORE_STORE_H

/*
 * History: what was measured, over days, weeks and months, in one SQLite file of bounded size.
 * The store knows series and events; what they mean is its callers' business.
 *
 *   subject   what figures are about: a kind ("device"), a key that names it for ever within its kind
 *             (a UUID), and labels for people, a JSON object
 *   figure    the name of one number ("used_bytes")
 *   series    one figure of one subject
 *   point     a value of a series at a time. Values are doubles: whole numbers are exact up to 2^53
 *   batch     all points of one moment, and what happened: written in one commit, or not at all
 *   event     something that happened: time, kind, perhaps a subject, and a JSON object
 *   bin       the points of a series in one step of time: count, min, mean, max, last
 *   level     a resolution: its step, and for how long it is kept
 *   ledger    the store's own clock, which never goes back; see docs/design/history.md
 *
 * Times at this interface are nanoseconds since 1970, by the wall clock. When that clock is set back, later
 * batches are still later: an answer in wall time then holds both stretches. Kept times are rounded down to a
 * tenth of the finest step, and a second batch within the same tenth is left out.
 * A writer commits each batch with a full sync: after a crash or a power cut at most the last is missing.
 * The file, its write-ahead log included, stays within max_bytes: the oldest goes first, fine before coarse.
 *
 * Threads: a store belongs to one thread. One process writes; any number of others, and other threads with a
 * store of their own, read meanwhile. Errors: PLIM_E_IO (disk full, locked by another program),
 * PLIM_E_DATA (damaged), PLIM_E_NOMEM, besides what the functions name.
 */

#include "base/arena.h"
#include "base/buf.h"
#include "base/vec.h"

#define PLIM_STORE_LEVELS    6u
#define PLIM_STORE_MAX_BYTES (UINT64_C(1) << 30) /* default size limit */
#define PLIM_STORE_MIN_BYTES (UINT64_C(16) << 20)

struct plim_store_level {
    uint64_t step_ns; /* a multiple of 10 ms and of the step before it */
    uint64_t keep_ns; /* at least two spans (360 steps) of the next level */
};

struct plim_store_options {
    const char *const
        *figures;     /* writers: [n_figures] names that points mean by their index; borrowed */
    size_t n_figures; /* at most 1024 */
    const struct plim_store_level
        *levels;           /* [n_levels], finest first; NULL: 1 s for a day, 10 s for */
    size_t n_levels;       /* a week, 1 min for 92 days, 1 h for two years */
    uint64_t max_bytes;    /* of file and log; 0: PLIM_STORE_MAX_BYTES */
    uint32_t max_subjects; /* kept of one stretch of a coarser level, those seen longest; 0: 1024 */
    bool read_only;
    const char *vfs; /* name of an SQLite VFS, NULL: the system's; for tests */
};

struct plim_store;

/** plim_store_limit_check() - whether a history can have so few bytes, and so many. Errors: PLIM_E_USAGE. */
PLIM_MUST_USE enum plim_status plim_store_limit_check(uint64_t max_bytes, struct plim_err *err);

/** plim_store_levels_check() - whether levels are possible. Errors: PLIM_E_USAGE. */
PLIM_MUST_USE enum plim_status plim_store_levels_check(const struct plim_store_level *levels,
                                                       size_t n, struct plim_err *err);

/**
 * plim_store_open() - open or make the history at `path`.
 * A writer that finds the file damaged or unreadable as a database renames it to PATH.damaged-DATE and begins a
 * new one (plim_store_state says so); of such files the newest two are kept.
 * Errors: PLIM_E_NOINPUT no such file (read_only) or no folder; PLIM_E_USAGE impossible options;
 * PLIM_E_UNSAFE it is another program's database; PLIM_E_UNSUPPORTED a newer version made it; PLIM_E_OS another
 * process writes it.
 */
PLIM_MUST_USE enum plim_status plim_store_open(const char *path,
                                               const struct plim_store_options *options,
                                               struct plim_store **out, struct plim_err *err);
void plim_store_close(struct plim_store *store);

/* ---- writing ---- */

struct plim_batch_subject {
    uint32_t kind, key, labels; /* offsets into text, each NUL-terminated */
    uint32_t n_points;          /* the next ones of `values` */
    uint64_t hash;              /* of kind and key */
};

struct plim_batch_event {
    uint64_t time_ns;
    uint32_t kind, json; /* offsets into text */
    uint32_t subject;    /* index into subjects, or UINT32_MAX */
};

/* What was measured at one moment; zeroed is empty. Its storage is kept by reset. */
struct plim_batch {
    uint64_t time_ns; /* since 1970 */
    uint64_t
        mono_ns; /* CLOCK_BOOTTIME at the same moment, 0 unknown: tells clock steps from gaps */
    PLIM_VEC(struct plim_batch_subject) subjects;
    PLIM_VEC(double) values;    /* in the order of the subjects */
    PLIM_VEC(uint16_t) figures; /* of each value: index into options.figures */
    PLIM_VEC(struct plim_batch_event) events;
    struct plim_buf text;
};

void plim_batch_fini(struct plim_batch *batch);
void plim_batch_reset(struct plim_batch *batch, uint64_t time_ns, uint64_t mono_ns);

/** plim_batch_subject() - begin a subject; points that follow are its. Texts are copied. A subject of the same
 * kind and key again is the same one. @labels: "" leaves those that it has. Errors of the three: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_batch_subject(struct plim_batch *batch, const char *kind,
                                                  const char *key, const char *labels,
                                                  struct plim_err *err);

/** plim_batch_point() - a value of the newest subject. What is not finite is left out. */
PLIM_MUST_USE enum plim_status plim_batch_point(struct plim_batch *batch, uint16_t figure,
                                                double value, struct plim_err *err);

/** plim_batch_event() - @about: the newest subject takes part. */
PLIM_MUST_USE enum plim_status plim_batch_event(struct plim_batch *batch, uint64_t time_ns,
                                                const char *kind, bool about, const char *json,
                                                struct plim_err *err);

/** plim_store_limit() - let file and log have so many bytes from now on (0: PLIM_STORE_MAX_BYTES). Fewer than they
 * have: the oldest goes, and the file gets smaller. Errors: PLIM_E_USAGE as of check. */
PLIM_MUST_USE enum plim_status plim_store_limit(struct plim_store *store, uint64_t max_bytes,
                                                struct plim_err *err);

/** plim_batch_bytes() - memory that it holds. */
uint64_t plim_batch_bytes(const struct plim_batch *batch);

/**
 * plim_store_put() - write a batch, and now and then tidy up. On an error nothing of the batch is written and the
 * store can be used on. A database found damaged is set aside and begun anew: PLIM_OK.
 * Cost: about one sync of the disk; every 360 steps a few tens of milliseconds more.
 */
PLIM_MUST_USE enum plim_status plim_store_put(struct plim_store *store,
                                              const struct plim_batch *batch, struct plim_err *err);

/* ---- reading ---- */

struct plim_store_subject {
    uint64_t id;            /* in this file */
    const char *kind, *key; /* arena */
    const char *labels;     /* arena: JSON object */
    uint64_t first_ns, last_ns;
};

struct plim_store_subjects {
    PLIM_VEC(struct plim_store_subject) list; /* the texts live in the arena */
};

/** plim_store_subjects() - those that were there between from and to, order: kind, first time. */
PLIM_MUST_USE enum plim_status plim_store_subjects(struct plim_store *store, uint64_t from_ns,
                                                   uint64_t to_ns, struct plim_arena *arena,
                                                   struct plim_store_subjects *out,
                                                   struct plim_err *err);

/** plim_store_figures() - the figures that a subject had at the beginning or the end of that time; appended to
 * *names, arena. */
struct plim_store_names {
    PLIM_VEC(const char *) list;
};
PLIM_MUST_USE enum plim_status
plim_store_figures(struct plim_store *store, uint64_t subject, uint64_t from_ns, uint64_t to_ns,
                   struct plim_arena *arena, struct plim_store_names *names, struct plim_err *err);

struct plim_store_bin {
    uint64_t time_ns; /* its beginning */
    uint64_t n;       /* points in it, never 0: empty bins are left out */
    double min, mean, max, last;
};

struct plim_store_query {
    uint64_t subject; /* id */
    const char *figure;
    uint64_t from_ns, to_ns; /* [from, to); to 0: to the end */
    uint64_t step_ns;        /* width of the bins wanted, 0: by max_points */
    uint32_t max_points;     /* 0: 1000 */
};

struct plim_store_answer {
    PLIM_VEC(struct plim_store_bin) bins; /* order: time */
    uint64_t step_ns;                     /* width of the bins: a multiple of the level's step */
    uint64_t complete_from_ns; /* before this, what is there is coarser than step_ns, or gone */
};

void plim_store_answer_fini(struct plim_store_answer *answer);

/** plim_store_query() - a series, in bins. Errors: PLIM_E_USAGE an empty range. An unknown subject or figure has no
 * bins. Cost: a few milliseconds for a thousand bins of a quarter. */
PLIM_MUST_USE enum plim_status plim_store_query(struct plim_store *store,
                                                const struct plim_store_query *query,
                                                struct plim_store_answer *out,
                                                struct plim_err *err);

struct plim_store_event {
    uint64_t id; /* later events have higher ones */
    uint64_t time_ns;
    uint64_t subject; /* id, 0 none */
    const char *kind, *json;
};

struct plim_store_event_filter {
    uint64_t from_ns, to_ns; /* to 0: to the end */
    const char *kind;        /* NULL: all */
    uint64_t subject;        /* 0: all */
    uint64_t after;          /* only ids above this */
    uint32_t limit;          /* the newest that many, 0: 1000 */
};

/** plim_store_events() - in the order of time, to `take`, which returns false to stop. Texts are borrowed for the
 * call. */
PLIM_MUST_USE enum plim_status
plim_store_events(struct plim_store *store, const struct plim_store_event_filter *filter,
                  bool (*take)(void *self, const struct plim_store_event *event), void *self,
                  struct plim_err *err);

/* ---- state ---- */

/* X(NAME, text): why a store cannot write or read. */
#define PLIM_STORE_FAULT_MAP(X)                                                                    \
    X(NONE, "ok")                                                                                  \
    X(FULL, "disk full")                                                                           \
    X(LOCKED, "locked by another program")                                                         \
    X(DAMAGED, "damaged")                                                                          \
    X(READ_ONLY, "not writable")                                                                   \
    X(IO, "input/output error")                                                                    \
    X(BLOCKED, "a reader keeps the log from being emptied")                                        \
    X(OTHER, "failed")

enum plim_store_fault {
#define PLIM__X(name, text) PLIM_STORE_##name,
    PLIM_STORE_FAULT_MAP(PLIM__X)
#undef PLIM__X
    PLIM_STORE_FAULTS
};

struct plim_store_state {
    uint64_t bytes, max_bytes;   /* of file and log */
    uint64_t series;             /* with points in the newest stretch */
    enum plim_store_fault fault; /* of the last call that wrote */
    char why[200];               /* "" when there is none */
    uint64_t batches, points;    /* written by this store since it was opened */
    uint64_t skipped;            /* batches left out: the same tenth of a step again */
    uint64_t crowded;    /* subjects left out of coarser levels, more than max_subjects at a time */
    uint64_t unreadable; /* pieces that were damaged and passed over */
    uint64_t set_aside;  /* databases set aside since it was opened */
    char aside[256];     /* the newest of them, "" none */
    uint64_t first_ns, last_ns; /* of all points, 0 none */
    size_t n_levels;
    struct plim_store_level level[PLIM_STORE_LEVELS];
    uint64_t level_from_ns[PLIM_STORE_LEVELS]; /* history of this level begins, 0 none */
};

/** plim_store_state() - everything above. plim_store_counts() - without what takes queries: sizes of files, faults and
 * counters; the rest of *out is left. */
void plim_store_state(struct plim_store *store, struct plim_store_state *out);
void plim_store_counts(struct plim_store *store, struct plim_store_state *out);
const char *plim_store_fault_text(enum plim_store_fault fault);

#endif
