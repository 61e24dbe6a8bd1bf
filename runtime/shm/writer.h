/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SHM_WRITER_H
#define PLIM_SHM_WRITER_H

/*
 * The writing side of a recorder's file (include/plimsoll/shm.h has the layout and the rules).
 *
 * plim__shm_write and plim__shm_total are lock-free and may be called by any number of threads. What
 * adds to a table (text, library, stack) must be called by one thread at a time; readers may look
 * meanwhile, because a row counts only after it is complete. Nothing here allocates, prints or waits.
 */

#include <plimsoll/shm.h>

struct plim_shm_sizes {
    uint64_t ring_slots; /* a power of two */
    uint64_t text_bytes;
    uint32_t libraries, stacks;
    uint64_t frames;
};

struct plim_shm_writer {
    struct plim_shm_head *head; /* NULL when there is no file */
    struct plim_gpu_event *ring;
    uint64_t mask; /* ring slots - 1 */
    struct plim_shm_total *totals;
    struct plim_shm_library *libraries;
    struct plim_shm_stack *stacks;
    uint64_t *frames;
    char *text;
    struct plim_shm_sizes sizes;
};

/**
 * plim__shm_create() - make the file of this process and map it.
 * @dir:   session folder; must exist.
 * @calls: [n] names of calls; calls[0] is "".
 * Returns 0, or a negative errno: -ENOSPC, -EACCES, -EROFS, -EINVAL (sizes or a path too long), ...
 * Nothing is left behind on failure. Cost: writes every page of the file once.
 */
int plim__shm_create(struct plim_shm_writer *writer, const char *dir,
                     const struct plim_shm_sizes *sizes, const char *const *calls, uint32_t n,
                     const char *version);

/** plim__shm_unmap() - forget the mapping: what a forked child does with its parent's file. */
void plim__shm_unmap(struct plim_shm_writer *writer);

/** plim__shm_write() - put an event into the ring; sets its seq. False: full, counted in `lost`. */
bool plim__shm_write(struct plim_shm_writer *writer, const struct plim_gpu_event *event);

/** plim__shm_add_text()/library()/stack() - a new row. Returns its offset or index; 0 when there is no
 * room. path is borrowed; frames: [n]. */
uint32_t plim__shm_add_text(struct plim_shm_writer *writer, const char *text);
uint32_t plim__shm_add_library(struct plim_shm_writer *writer, uint64_t base, uint64_t end,
                               const char *path, unsigned owner);
uint32_t plim__shm_add_stack(struct plim_shm_writer *writer, const uint64_t *frames, uint32_t n);

/** plim__shm_total() - the totals' row of an owner on a device; both are clamped into range. */
static inline struct plim_shm_total *plim__shm_total(const struct plim_shm_writer *writer,
                                                     unsigned device, unsigned owner)
{
    unsigned row = device < PLIM_SHM_DEVICES - 1 ? device : PLIM_SHM_DEVICES - 1;
    return &writer->totals[row * PLIM_SHM_OWNERS + (owner < PLIM_SHM_OWNERS ? owner : 0)];
}

#endif
