/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_SNAPSHOT_MAKER_H
#define PLIM_TESTS_SNAPSHOT_MAKER_H

/*
 * A small toy allocator that writes a snapshot while a test allocates and frees: every request of at
 * least 1 MiB gets a segment of its own, smaller ones share 2 MiB segments first fit. Enough physics
 * for the readers of snapshots; the exact allocator is src/alloc.
 */

#include "heap/snapshot.h"

#define MAKER_BLOCKS 4096

struct maker {
    struct plim_snapshot snapshot;
    uint64_t next_addr;
    struct {
        uint64_t addr, size;
        uint32_t stack, event;
        bool used;
    } blocks[MAKER_BLOCKS];
    uint64_t segments[MAKER_BLOCKS]; /* addresses; sizes are in segment_sizes */
    uint64_t segment_sizes[MAKER_BLOCKS];
    uint16_t segment_pools[MAKER_BLOCKS];
    size_t n_blocks, n_segments;
    uint64_t time_us;
    size_t forget; /* events at the start that the record lost; taken at maker_finish */
};

void maker_init(struct maker *m);
void maker_fini(struct maker *m);

/* A stack of one user frame "name file:line" below a library frame. */
uint32_t maker_stack(struct maker *m, const char *name, const char *file, uint32_t line);

/* A stack of n frames, innermost first, each {name, file, line}. */
struct maker_frame {
    const char *name, *file;
    uint32_t line;
};
uint32_t maker_deep_stack(struct maker *m, const struct maker_frame *frames, size_t n);

/* Returns a handle for maker_free. A request under 1 MiB shares a segment, others get their own. */
size_t maker_alloc(struct maker *m, uint64_t size, uint32_t stack);
size_t maker_alloc_in(struct maker *m, uint64_t segment_size, uint64_t size, uint32_t stack);
void maker_free(struct maker *m, size_t handle);

/* A segment of `size` that stays, with a block of `live` bytes at its start: strands the rest. */
size_t maker_strand(struct maker *m, uint64_t size, uint64_t live, uint16_t pool, uint32_t stack);

void maker_oom(struct maker *m, uint64_t size, uint64_t device_free, uint32_t stack);

/* Write the heap at the end into the snapshot. Call once, before judging it. */
void maker_finish(struct maker *m);

#endif
