/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_OBSERVE_ENGINE_LOG_H
#define PLIM_OBSERVE_ENGINE_LOG_H

/*
 * What an engine's log says of its memory, read as it is written: bytes of each component, and failures.
 *
 *   row     a line that is known (engine_log_rows.def)
 *   told    what the log has told since the engine started last
 *   follow  a file, pipe or standard input that is read as far as it goes, again and again
 *
 * A file that is replaced is read to its end, then the new one; a file that shrinks is begun anew. Failures count
 * only when they are written while the log is followed: what was there before is history. Any bytes may come: lines
 * longer than PLIM_OOM_LINE bytes are passed over, and nothing is kept but figures.
 * Threads: a log belongs to one thread.
 */

#include "base/str.h"
#include "observe/observation.h"
#include "observe/place.h"

#define PLIM_ENGINE_LOG_STEP (2u << 20) /* most bytes that one step reads: some ten milliseconds */
#define PLIM_ENGINE_LOG_KEYS 64 /* most processes or devices of one log that are told apart */

struct plim__log_key {
    char name[32];  /* pid, rank or device; "" none */
    uint64_t valid; /* bit for each component */
    uint64_t bytes[PLIM_COMPONENTS];
    uint64_t graph_plan; /* of the activations, kept for graphs */
};

struct plim_engine_told {
    enum plim_engine_kind kind;
    uint32_t pid; /* of the process that told its weights, 0 unknown */
    uint64_t component_valid;
    uint64_t component[PLIM_COMPONENTS]; /* bytes on each device: the fullest one's */
    uint64_t kv_tokens, max_context;     /* 0 unknown */
};

struct plim_engine_log; /* the state of the reader */

/** plim_engine_log_new() - nothing told yet. NULL: no memory. */
struct plim_engine_log *plim_engine_log_new(void);
void plim_engine_log_free(struct plim_engine_log *log); /* NULL is allowed */

/**
 * plim_engine_log_feed() - the next bytes of the log.
 * @live: failures in them are new. They wait in the log for plim_engine_log_take().
 * Errors: PLIM_E_NOMEM. Cost: two fast passes; 0.1 GB/s and more over lines that say nothing.
 */
PLIM_MUST_USE enum plim_status plim_engine_log_feed(struct plim_engine_log *log,
                                                    struct plim_str bytes, bool live,
                                                    struct plim_err *err);

/** plim_engine_log_told() - what it has told so far. */
struct plim_engine_told plim_engine_log_told(const struct plim_engine_log *log);

/** plim_engine_log_take() - the next failure that was not taken yet; false: none. Times are those of reading. */
bool plim_engine_log_take(struct plim_engine_log *log, struct plim_happening *out);

/* ---- following (engine_follow.c) ---- */

struct plim_engine_follow;

/** plim_engine_follow_open() - begin to follow; a file need not be there yet. "-" is standard input.
 * Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_engine_follow_open(const struct plim_place *place,
                                                       struct plim_engine_follow **out,
                                                       struct plim_err *err);

/**
 * plim_engine_follow_step() - read what is new, at most PLIM_ENGINE_LOG_STEP bytes. Never waits.
 * Errors: PLIM_E_NOINPUT it cannot be opened; PLIM_E_IO; PLIM_E_NOMEM. The next step tries again.
 */
PLIM_MUST_USE enum plim_status plim_engine_follow_step(struct plim_engine_follow *follow,
                                                       struct plim_err *err);

struct plim_engine_log *plim_engine_follow_log(struct plim_engine_follow *follow);
/** plim_engine_follow_is() - whether it is the log at this place, under the same name. */
bool plim_engine_follow_is(const struct plim_engine_follow *follow, const struct plim_place *place);
const char *plim_engine_follow_name(const struct plim_engine_follow *follow);
void plim_engine_follow_close(struct plim_engine_follow *follow); /* NULL is allowed */

#endif
