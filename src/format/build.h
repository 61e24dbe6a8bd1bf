/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_BUILD_H
#define PLIM_FORMAT_BUILD_H

/*
 * From a stream of "new dict, set these pairs, append these items" to the columns of a snapshot.
 *
 * The pickle machine and the JSON reader call the same few functions. No tree of objects is kept: as
 * soon as a dict has its keys it is recognised by them and written into a typed column, and what
 * remains of it is one 32-bit cell that says "event 1234" or "frame 77". A list of frames becomes a
 * stack, a list of consecutive events or blocks a run (first, n). Only what is not recognised (the
 * top level, the settings, unknown keys) is held as a box of values.
 *
 *   cell   what a container is by now: a kind and an index into the column of that kind
 *   box    a dict or list that is not (yet) anything else: its values; a dict's keys at even places
 *   run    consecutive elements of one column
 *
 * A cell whose content was copied elsewhere (a stack into an event) is `used` and refuses to change.
 * Threads: one at a time. All of it is gone after plim__build_finish().
 */

#include "base/map.h"
#include "format/snapshot_read.h"
#include "format/value.h"
#include "format/words.h"

enum plim_cell_kind {
    PLIM_CELL_DICT,     /* an empty dict, still without a box */
    PLIM_CELL_LIST,     /* an empty list or tuple */
    PLIM_CELL_BOX_DICT, /* index of a box */
    PLIM_CELL_BOX_LIST, /* index of a box */
    PLIM_CELL_FRAME,    /* frame id */
    PLIM_CELL_STACK,    /* stack id */
    PLIM_CELL_EVENT,    /* index into events, and so on */
    PLIM_CELL_SEGMENT,
    PLIM_CELL_BLOCK,
    PLIM_CELL_PAST, /* an item of a block's history (torch 1.13 to 2.1) */
    PLIM_CELL_ANNOTATION,
    PLIM_CELL_RUN, /* index into runs */
};

/* A cell in 32 bits: kind (4), used (1), index (27). */
#define PLIM_CELL_INDEX_BITS 27u
#define PLIM_CELL_INDEX_MAX  ((1u << PLIM_CELL_INDEX_BITS) - 1)
#define PLIM_CELL_USED       (1u << PLIM_CELL_INDEX_BITS)

static inline uint32_t plim__cell(enum plim_cell_kind kind, size_t index)
{
    return (uint32_t)kind << (PLIM_CELL_INDEX_BITS + 1) | (uint32_t)index;
}

static inline enum plim_cell_kind plim__cell_kind(uint32_t cell)
{
    return (enum plim_cell_kind)(cell >> (PLIM_CELL_INDEX_BITS + 1));
}

static inline uint32_t plim__cell_index(uint32_t cell)
{
    return cell & PLIM_CELL_INDEX_MAX;
}

struct plim_box {
    struct plim_value *items; /* owned, [cap] */
    uint32_t n;
    uint32_t cap;
    bool no_stack; /* not a list of frames, as was found out */
    bool visiting; /* on the path of the search for a container that holds itself */
    bool visited;
};

struct plim_run {
    uint32_t first;
    uint32_t n;
    enum plim_cell_kind kind; /* of its elements */
};

/* What a segment or block said and what it did not: one bit for each fact. */
enum {
    PLIM_HAS_ADDR = 1,
    PLIM_HAS_SIZE = 2,
    PLIM_HAS_REQUESTED = 4,
    PLIM_HAS_STATE = 8,
    PLIM_HAS_ALLOCATED = 16,
    PLIM_HAS_ACTIVE = 32,
    PLIM_IS_BAD = 64,   /* a field had a wrong type or value */
    PLIM_IS_TAKEN = 128 /* already part of a heap */
};

struct plim_raw_segment {
    struct plim_segment s; /* stream and pool are final; first_block counts in plim_build.blocks */
    uint64_t device;
    uint64_t allocated; /* as the source says */
    uint64_t active;
    uint64_t requested;
    uint8_t has; /* PLIM_HAS_* */
};

struct plim_raw_block {
    struct plim_block b;
    uint32_t past; /* index of its newest history item, or UINT32_MAX */
    uint8_t has;   /* PLIM_HAS_* */
};

/* One item of a block's history: the allocation it served. */
struct plim_past {
    uint64_t real_size;
    uint32_t stack;
    bool has_size;
};

/* A finding about a trace entry, kept until its place in its device's trace is known. */
struct plim_event_finding {
    uint32_t event;   /* index into plim_build.events */
    const char *text; /* static */
};

struct plim_build {
    struct plim_snapshot snap; /* owned until finish */
    struct plim_read_limits limits;
    bool no_shapes;    /* every entry goes the general way: tests compare the two */
    uint64_t expected; /* bytes of the input when known, else 0 */
    PLIM_VEC(uint32_t) cells;
    PLIM_VEC(struct plim_box) boxes;
    PLIM_VEC(uint32_t) free_boxes;
    uint64_t box_bytes; /* storage of all boxes */
    PLIM_VEC(struct plim_run) runs;
    PLIM_VEC(struct plim_event) events;
    PLIM_VEC(struct plim_raw_segment) segments;
    PLIM_VEC(struct plim_raw_block) blocks;
    PLIM_VEC(struct plim_past) pasts;
    PLIM_VEC(struct plim_annotation) annotations;
    PLIM_VEC(struct plim_event_finding) event_findings;
    PLIM_VEC(uint32_t) ids; /* scratch: the frames of a list */

    PLIM_VEC(struct plim_pool_id) pairs; /* tuples of two integers, by index */
    struct plim_map pair_index;          /* hash -> index */
    struct plim_map stream_index;        /* handle -> stream index */
    struct plim_map pool_index;          /* pair index -> pool index */
    struct plim_map join_index;          /* C++ and Python stack -> joined stack */
    struct plim_map note_index;          /* both texts -> note index */
    uint32_t last_pair;                  /* the most recent ones: traces repeat themselves */
    int64_t last_stream;
    uint16_t last_stream_index; /* meaningful once a stream is known */
    uint32_t last_pool_pair;    /* UINT32_MAX before the first */
    uint16_t last_pool_index;

    uint64_t by_shape;                     /* entries that the pickle machine read the short way */
    uint64_t seen;                         /* keys that occurred, as PLIM_KEY_BIT()s */
    uint64_t by_action[PLIM_ACTION_COUNT]; /* of all events */
    bool has_times;                        /* an event had time_us */
    size_t doubtful;                       /* events with a PLIM_EVENT_* flag, not yet looked at */
};

/* plim_event.pad[0] while reading. */
enum {
    PLIM_EVENT_NO_ADDR = 1,
    PLIM_EVENT_NO_SIZE = 2,
    PLIM_EVENT_BAD = 4
};

/** plim__build_init() - an empty builder that knows the fixed words. Errors: PLIM_E_NOMEM.
 * @expected: bytes of the input when known, else 0; room is set aside for so many. */
PLIM_MUST_USE enum plim_status plim__build_init(struct plim_build *b,
                                                const struct plim_read_limits *limits,
                                                uint64_t expected, struct plim_err *err);
void plim__build_fini(struct plim_build *b);

/** plim__build_worth_room() - whether the input is known to be so large that room is set aside for it. */
bool plim__build_worth_room(const struct plim_build *b);

/** plim__build_memory() - bytes held now. Cost: O(1). */
uint64_t plim__build_memory(const struct plim_build *b);

/** plim__build_budget() - PLIM_E_BUDGET when `extra` and the builder's bytes pass the limit, which is
 * limits.memory and, so that small files stay small, 64 MiB and four times `consumed`. */
PLIM_MUST_USE enum plim_status plim__build_budget(const struct plim_build *b, uint64_t extra,
                                                  uint64_t consumed, struct plim_err *err);

/* New values. Errors: PLIM_E_NOMEM; PLIM_E_BUDGET beyond 2^27 containers. */
PLIM_MUST_USE enum plim_status plim__build_str(struct plim_build *b, struct plim_str s,
                                               struct plim_value *out, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__build_tuple(struct plim_build *b,
                                                 const struct plim_value *items, size_t n,
                                                 struct plim_value *out, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__build_pair(struct plim_build *b, uint64_t first,
                                                uint64_t second, struct plim_value *out,
                                                struct plim_err *err);
enum plim_status plim__build_many_cells(struct plim_err *err);

/* A new empty dict (PLIM_CELL_DICT) or list (PLIM_CELL_LIST). */
static inline enum plim_status plim__build_new(struct plim_build *b, enum plim_cell_kind kind,
                                               struct plim_value *out, struct plim_err *err)
{
    if (b->cells.n >= PLIM_CELL_INDEX_MAX) {
        return plim__build_many_cells(err);
    }
    PLIM_TRY(plim_vec_push(&b->cells, err, plim__cell(kind, 0)));
    *out = plim__value(PLIM_V_CELL, b->cells.n - 1);
    return PLIM_OK;
}

/** plim__build_set() - dict[key] = value for n pairs [2n], in order.
 * Errors: PLIM_E_DATA `dict` is no dict, or would hold itself; PLIM_E_UNSUPPORTED a dict that was used
 * changes in a way that cannot be followed. */
PLIM_MUST_USE enum plim_status plim__build_set(struct plim_build *b, struct plim_value dict,
                                               struct plim_value *pairs, size_t n,
                                               struct plim_err *err);

/** plim__build_append() - list.extend(items [n]). Errors: as plim__build_set(). */
PLIM_MUST_USE enum plim_status plim__build_append(struct plim_build *b, struct plim_value list,
                                                  struct plim_value *items, size_t n,
                                                  struct plim_err *err);

/** plim__build_finish() - the snapshot that `root` is; b->snap moves to *out.
 * Errors: PLIM_E_DATA it is none, with what it looks like. */
PLIM_MUST_USE enum plim_status plim__build_finish(struct plim_build *b, struct plim_value root,
                                                  struct plim_snapshot *out, struct plim_err *err);

#endif
