/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIMSOLL_SEATING_H
#define PLIMSOLL_SEATING_H

/*
 * Where the blocks of a program that repeats itself go: computed from a recorded trace, followed by the
 * allocator that moves pages (engine.h) in its mode `plan`.
 *
 *   prologue the requests that it makes once, from its first one on; may be empty
 *   period   those that it makes again and again behind them, in their order
 *   lane     a stream by number, since a stream's handle differs from process to process. Lane 0 is the
 *            default stream; which streams the others are shows when the program is followed
 *   area     addresses for the planned blocks of one lane and one size class (small: up to
 *            PLIM_ENGINE_SMALL bytes; large: the rest)
 *   place    a request's offset in its area. A request without one is served as any other
 *   rank     number of a place among the different places of its area, in their order
 *   gram     PLIM_SEATING_GRAM sizes in a row: by what was asked for lately one finds back into the
 *            period
 *
 * A seating is advice. The allocator takes a place only when its own books say that it is free, so
 * that a wrong seating, or a program that does something else, costs memory and never corrupts any.
 * docs/format/seating.md describes the text. Threads: read by any number once made.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLIM_SEATING_HEAD  "plimsoll seating 1" /* first line of the text */
#define PLIM_SEATING_MOST  (UINT32_C(1) << 20)  /* requests */
#define PLIM_SEATING_LANES 16u
#define PLIM_SEATING_BYTES (UINT64_C(1) << 46) /* largest size, and end of a place */
#define PLIM_SEATING_FILE  (UINT64_C(1) << 26) /* bytes of the largest text */
#define PLIM_SEATING_NONE  UINT64_MAX          /* no place */
#define PLIM_SEATING_GRAM  4u

struct plim_seating_request {
    uint64_t size;  /* bytes, a multiple of PLIM_ENGINE_UNIT, above 0 */
    uint64_t place; /* bytes, a multiple of PLIM_ENGINE_UNIT, or PLIM_SEATING_NONE */
    uint32_t lane;
    uint32_t rank; /* with a place */
};

struct plim_seating {
    uint32_t n;      /* requests, above 0 */
    uint32_t repeat; /* where the period begins, below n: it ends with the last request */
    uint32_t lanes;  /* 1 to PLIM_SEATING_LANES */
    struct plim_seating_request *requests; /* owned, [n] */
    /* What follows is computed by plim_seating_index(). */
    uint64_t height[PLIM_SEATING_LANES][2]; /* bytes of the areas, small and large; 0: none */
    uint32_t ranks[PLIM_SEATING_LANES][2];  /* different places in them */
    uint64_t *gram;    /* owned, [n]: hash of the sizes up to and with this request */
    uint32_t *by_gram; /* owned, [n]: requests by gram, then by position */
};

struct plim_seating_fault {
    uint64_t line;    /* from 1; 0: the text as a whole */
    const char *what; /* static */
};

/**
 * plim_seating_parse() - the text of a seating. Anything may be in it.
 * @text: [bytes], needs no NUL. @out: free with plim_seating_free().
 * @fault: with false, what is wrong and where. Cost: O(n log n); memory 40 bytes a request.
 */
bool plim_seating_parse(const char *text, size_t bytes, struct plim_seating *out,
                        struct plim_seating_fault *fault);

/** plim_seating_index() - heights, ranks and grams of n, lanes and requests. false: no host memory,
 * nothing is changed. */
bool plim_seating_index(struct plim_seating *p);

/** plim_seating_gram() - hash of the latest PLIM_SEATING_GRAM sizes, oldest first. */
uint64_t plim_seating_gram(const uint64_t *sizes);

/** plim_seating_free() - also of a zeroed one. */
void plim_seating_free(struct plim_seating *p);

#ifdef __cplusplus
}
#endif
#endif
