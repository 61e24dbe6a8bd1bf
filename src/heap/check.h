/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HEAP_CHECK_H
#define PLIM_HEAP_CHECK_H

/*
 * Structure checks: where a snapshot contradicts itself. A contradiction is a finding of the snapshot, not
 * an error: what still makes sense is used. Threads: one at a time.
 */

#include "heap/snapshot.h"

/**
 * plim_heap_trouble() - the first broken invariant of a heap (see heap/heap.h), or NULL.
 * @segment: (nullable) the index of the segment where it is.
 * The text is static. Cost: O(segments + blocks). For tests and debug builds.
 */
const char *plim_heap_trouble(const struct plim_heap *heap, size_t *segment);

/** plim_snapshot_check() - add a finding for each inconsistency of heaps and traces.
 * Cost: O(segments + blocks). */
void plim_snapshot_check(struct plim_snapshot *snapshot);

#endif
