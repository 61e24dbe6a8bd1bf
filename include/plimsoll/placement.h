/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIMSOLL_PLACEMENT_H
#define PLIMSOLL_PLACEMENT_H

/*
 * Where the blocks of a program that repeats itself go: computed from a recorded trace, followed by the
 * allocator that moves pages (engine.h) in its mode `plan`.
 *
 *   period   the requests that the program makes again and again, in their order
 *   lane     a stream by number, since a stream's handle differs from process to process. Lane 0 is the
 *            default stream; which streams the others are shows when the program is followed
 *   area     addresses for the planned blocks of one lane and one size class (small: up to
 *            PLIM_ENGINE_SMALL bytes; large: the rest)
 *   place    a request's offset in its area. A request without one is served as any other
 *   rank     number of a place among the different places of its area, in their order
 *   gram     PLIM_PLACEMENT_GRAM sizes in a row: by what was asked for lately one finds back into the
 *            period
 *
 * A placement is advice. The allocator takes a place only when its own books say that it is free, so
 * that a wrong placement, or a program that does something else, costs memory and never corrupts any.
 * docs/format/placement.md describes the text. Threads: read by any number once made.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLIM_PLACEMENT_HEAD  "plimsoll placement 1" /* first line of the text */
#define PLIM_PLACEMENT_MOST  (UINT32_C(1) << 20)    /* requests */
#define PLIM_PLACEMENT_LANES 16u
#define PLIM_PLACEMENT_BYTES (UINT64_C(1) << 46) /* largest size, and end of a place */
#define PLIM_PLACEMENT_FILE  (UINT64_C(1) << 26) /* bytes of the largest text */
#define PLIM_PLACEMENT_NONE  UINT64_MAX          /* no place */
#define PLIM_PLACEMENT_GRAM  4u

struct plim_placement_request {
    uint64_t size;  /* bytes, a multiple of PLIM_ENGINE_UNIT, above 0 */
    uint64_t place; /* bytes, a multiple of PLIM_ENGINE_UNIT, or PLIM_PLACEMENT_NONE */
    uint32_t lane;
    uint32_t rank; /* with a place */
};

struct plim_placement {
    uint32_t n;                              /* requests of the period, above 0 */
    uint32_t lanes;                          /* 1 to PLIM_PLACEMENT_LANES */
    struct plim_placement_request *requests; /* owned, [n] */
    /* What follows is computed by plim_placement_index(). */
    uint64_t height[PLIM_PLACEMENT_LANES][2]; /* bytes of the areas, small and large; 0: none */
    uint32_t ranks[PLIM_PLACEMENT_LANES][2];  /* different places in them */
    uint64_t *gram;    /* owned, [n]: hash of the sizes up to and with this request */
    uint32_t *by_gram; /* owned, [n]: requests by gram, then by position */
};

struct plim_placement_fault {
    uint64_t line;    /* from 1; 0: the text as a whole */
    const char *what; /* static */
};

/**
 * plim_placement_parse() - the text of a placement. Anything may be in it.
 * @text: [bytes], needs no NUL. @out: free with plim_placement_free().
 * @fault: with false, what is wrong and where. Cost: O(n log n); memory 40 bytes a request.
 */
bool plim_placement_parse(const char *text, size_t bytes, struct plim_placement *out,
                          struct plim_placement_fault *fault);

/** plim_placement_index() - heights, ranks and grams of n, lanes and requests. false: no host memory,
 * nothing is changed. */
bool plim_placement_index(struct plim_placement *p);

/** plim_placement_gram() - hash of the latest PLIM_PLACEMENT_GRAM sizes, oldest first. */
uint64_t plim_placement_gram(const uint64_t *sizes);

/** plim_placement_free() - also of a zeroed one. */
void plim_placement_free(struct plim_placement *p);

#ifdef __cplusplus
}
#endif
#endif
