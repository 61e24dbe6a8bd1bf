/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_PICKLE_SHAPE_H
#define PLIM_FORMAT_PICKLE_SHAPE_H

/*
 * Shapes: the short way for trace entries.
 *
 * A big snapshot is a million dicts that Python's pickler writes with the same bytes but for a few
 * numbers: the same keys from the memo, the same "N/A", the same pool. A shape is such a row of bytes
 * with holes for the numbers and the frames, learned from an entry that went the general way. While
 * entries fit a shape they are read without executing their opcodes one by one; whatever does not fit,
 * in any byte, goes the general way. The effect on memo, cells and columns is the same either way.
 *
 *   } MEMOIZE ( h0 [action] h3 [addr] h5 [size] h7 [stream] h9 [time] h11 U3 N/A MEMOIZE ... [frames] u
 *
 * Lists of frames are found again by their bytes too (a body): the memo keys of the same frames in the same
 * order. Both memories are void when a memo entry is overwritten, which no pickler does.
 */

#include "format/build.h"

#define PLIM_SHAPES       16u /* remembered at a time */
#define PLIM_SHAPE_STEPS  10u
#define PLIM_SHAPE_WORDS  6u    /* of 8 bytes: the longest fixed part between two holes */
#define PLIM_SHAPE_MARGIN 1024u /* bytes that must lie ahead to try */
#define PLIM_SHAPE_MEMO   8u
#define PLIM_BODY_BUCKETS 1024u

/* Fixed bytes, then a hole. */
struct plim_shape_step {
    uint64_t word[PLIM_SHAPE_WORDS];
    uint64_t mask[PLIM_SHAPE_WORDS];
    uint8_t words; /* used of word[] */
    uint8_t n;     /* fixed bytes */
    uint8_t hole;  /* enum hole in pickle_shape.c */
};

struct plim_shape {
    struct plim_shape_step steps[PLIM_SHAPE_STEPS];
    unsigned n_steps;
    bool has_stream;
    uint32_t memo[PLIM_SHAPE_MEMO]; /* values that the fixed bytes put into the memo, packed */
    unsigned n_memo;
    unsigned memo_before;    /* so many of them come before the list of frames */
    struct plim_event entry; /* the fields that the fixed bytes stand for */
    uint64_t used;           /* when it last fitted */
};

/* The bytes of a list's items and their APPENDS, and the stack that they make. */
struct plim_body {
    uint64_t tail;  /* its last 8 bytes */
    uint32_t first; /* offset into plim_shapes.bytes */
    uint32_t n;
    uint32_t stack;
    uint32_t next; /* in the same bucket, UINT32_MAX at the end */
};

struct plim_shapes {
    struct plim_shape shapes[PLIM_SHAPES];
    unsigned n;
    unsigned last;   /* the one that fitted last */
    unsigned misses; /* learned since the last fit */
    uint64_t clock;
    uint64_t fits; /* entries read the short way */
    uint64_t rest; /* entries to let pass before learning again */
    uint32_t bucket[PLIM_BODY_BUCKETS];
    PLIM_VEC(struct plim_body) bodies;
    PLIM_VEC(uint8_t) bytes;
};

struct plim_pickle;

/** plim__shapes_new() - NULL when memory is out, which only costs speed. */
struct plim_shapes *plim__shapes_new(void);
void plim__shapes_free(struct plim_shapes *s);
void plim__shapes_forget(struct plim_shapes *s);

/**
 * plim__shape_run() - the dict whose EMPTY_DICT lies just before p, and those that follow it, as long as they
 * fit shapes.
 * @safe: end of the bytes that may be looked at.
 * @sp:   [room] receives the values of the dicts, for the stack.
 * @made: how many there were.
 * Returns the bytes consumed, or 0: nothing has happened then.
 */
size_t plim__shape_run(struct plim_pickle *vm, const uint8_t *p, const uint8_t *safe,
                       struct plim_value *sp, size_t room, size_t *made);

/** plim__shape_learn() - remember the shape of the last event of the builder, which came from the n bytes
 * at p, behind its EMPTY_DICT and up to its SETITEMS. */
void plim__shape_learn(struct plim_pickle *vm, const uint8_t *p, size_t n);

#endif
