/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_SITE_H
#define PLIM_DIAGNOSE_SITE_H

/*
 * Sites: allocation stacks collapsed to the frames that tell something.
 *
 * A frame is noise (the allocator and the recording themselves), framework (PyTorch, the interpreter and
 * its standard library), package (another installed package: transformers, vllm ...), or user (the rest).
 * site: all stacks whose package and user frames are the same; a stack with neither is grouped by its
 * first framework frames. The full stacks are kept. category: what kind of memory the frames suggest. It
 * is a guess from names, and is always shown as one.
 * Strings are borrowed from the snapshot's interner. Threads: plain data.
 */

#include "diagnose/verdict.h"
#include "heap/snapshot.h"

/* X(name, JSON text) */
#define PLIM_CATEGORY_MAP(X)                                                                       \
    X(UNKNOWN, "unknown")                                                                          \
    X(WEIGHTS, "weights")                                                                          \
    X(KV_CACHE, "kv_cache")                                                                        \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(GRADIENTS, "gradients")                                                                      \
    X(ACTIVATIONS, "activations")                                                                  \
    X(WORKSPACE, "workspace")                                                                      \
    X(COMMUNICATION, "communication")

enum plim_category {
#define PLIM__X(name, text) PLIM_CATEGORY_##name,
    PLIM_CATEGORY_MAP(PLIM__X)
#undef PLIM__X
    PLIM_CATEGORY_COUNT
};

#define PLIM_SITE_FRAMES 3 /* frames kept for showing */

struct plim_site {
    uint32_t
        frames[PLIM_SITE_FRAMES]; /* frame ids, innermost first; the last is the user's own code
                                        * where there is any */
    uint32_t n_frames;
    uint32_t stack;              /* one of its stacks, for the full picture */
    uint64_t key;                /* hash of the frames' texts: the same in another snapshot */
    enum plim_category category; /* a guess */
};

struct plim_sites {
    PLIM_VEC(struct plim_site) sites; /* [0] is the site of blocks without a stack */
    PLIM_VEC(uint32_t) of_stack;      /* stack id -> site */
};

/** plim_sites_build() - collapse all stacks of a snapshot. Cost: O(frames of all stacks). */
PLIM_MUST_USE enum plim_status plim_sites_build(const struct plim_snapshot *snapshot,
                                                struct plim_sites *out, struct plim_err *err);
void plim_sites_fini(struct plim_sites *sites);

/** plim_site_of() - the site index of a stack id; 0 for PLIM_NO_STACK. */
uint32_t plim_site_of(const struct plim_sites *sites, uint32_t stack);

/** plim_site_text() - "append model.py:31 < step train.py:88", arena-owned, for people. */
const char *plim_site_text(const struct plim_snapshot *snapshot, const struct plim_site *site,
                           struct plim_arena *arena);

/** plim_frame_text() - "name file:line" of one frame; the last two parts of the path. */
const char *plim_frame_text(const struct plim_snapshot *snapshot, uint32_t frame,
                            struct plim_arena *arena);

/** plim_frame_is_program() - of the program or a package, neither PyTorch's nor the interpreter's. Pure. */
bool plim_frame_is_program(const struct plim_snapshot *snapshot, uint32_t frame);

const char *plim_category_text(enum plim_category category);

#endif
