/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIMSOLL_ALLOC_H
#define PLIMSOLL_ALLOC_H

/*
 * libplimsoll_alloc.so: an allocator for PyTorch's CUDAPluggableAllocator, which moves pages instead of
 * stranding them (plimsoll/engine.h says how).
 *
 * Two pairs of functions. plimsoll_alloc()/plimsoll_free() are for the whole process
 * (torch.cuda.memory.change_current_allocator): a request that cannot be met raises an exception, since
 * PyTorch would go on with a null pointer. plimsoll_pool_alloc()/plimsoll_free() are for one
 * torch.cuda.MemPool: NULL is then understood. The others are the optional hooks by their names in
 * torch._C._cuda_CUDAAllocator.
 *
 * Settings are read from the environment at the first call:
 *   PLIMSOLL_ALLOC_MODE      stitch (default): blocks as asked for, rounded to 512 bytes;
 *                            hybrid: sizes up to 1 MiB rounded to eighths of a power of two;
 *                            pool: sizes rounded to the next of PLIMSOLL_ALLOC_SIZES;
 *                            plan: what repeats itself is placed as PLIMSOLL_ALLOC_PLAN says
 *   PLIMSOLL_ALLOC_SIZES     block sizes in bytes, separated by commas, or @FILE with them, for mode pool
 *   PLIMSOLL_ALLOC_PLAN      file of a seating (plimsoll/seating.h), for mode plan
 *   PLIMSOLL_ALLOC_PAGE_MB   most of a page of large blocks: a power of two, 2 to 512
 *   PLIMSOLL_ALLOC_SLACK     how many percent more than the highest live memory may be reserved
 *   PLIMSOLL_ALLOC_LIMIT_MB  never reserve more
 * One that makes no sense, and a name PLIMSOLL_ALLOC_* that is none, is named on standard error, once, and ignored.
 *
 * Threads: any; one lock for each device. After fork the child has no device memory, and none of these
 * functions touches any. Source: torch 2.14.1 c10/cuda and torch/csrc CUDAPluggableAllocator.h (ABI).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** plimsoll_alloc() - `size` bytes on a device for a stream (0: the default one). 0 bytes: NULL. */
void *plimsoll_alloc(size_t size, int device, void *stream);

/** plimsoll_pool_alloc() - the same, NULL when there is no memory. */
void *plimsoll_pool_alloc(size_t size, int device, void *stream);

/** plimsoll_free() - give it back. NULL is allowed; an unknown or already freed pointer is counted and
 * otherwise ignored. */
void plimsoll_free(void *ptr, size_t size, int device, void *stream);

void plimsoll_alloc_init(int device_count);
/** plimsoll_alloc_reset() - torch.cuda.empty_cache(): free pages go back to the driver. */
void plimsoll_alloc_reset(void);
/** plimsoll_alloc_fraction() - at most that share of the device. */
void plimsoll_alloc_fraction(double fraction, int device);
/** plimsoll_alloc_base() - start of the block that holds ptr; *size becomes its size. */
void *plimsoll_alloc_base(void *ptr, size_t *size);
void plimsoll_alloc_record_stream(void *ptr, void *stream);
void plimsoll_alloc_begin_pool(int device, uint64_t id0, uint64_t id1, void *filter);
void plimsoll_alloc_end_pool(int device, uint64_t id0, uint64_t id1);
void plimsoll_alloc_release_pool(int device, uint64_t id0, uint64_t id1);

/** plimsoll_alloc_tag() - what this thread allocates from here on carries that tag, and shares no memory with
 * what does not. 0: none. Returns the tag from before. */
uint32_t plimsoll_alloc_tag(uint32_t tag);

/**
 * plimsoll_alloc_pause() - wait for the device and give the memory of a tag's blocks back to the driver; their
 * addresses stay theirs. They must not be touched until plimsoll_alloc_resume(); requests of that tag fail
 * meanwhile, frees are allowed.
 * @keep: what is in them comes back; costs as much host memory. Otherwise it is lost.
 * Returns the bytes given back; UINT64_MAX: no host memory, or the device would not; nothing has changed.
 */
uint64_t plimsoll_alloc_pause(int device, uint32_t tag, bool keep);

/** plimsoll_alloc_resume() - false: the device has not enough memory, all stays paused; try again. */
bool plimsoll_alloc_resume(int device, uint32_t tag);

/* Figures of one device; bytes unless said otherwise. What is paused counts in none but `blocks`. `requested` is of what
 * is active, and so is `peak_allocated`. */
struct plimsoll_alloc_stats {
    uint64_t bytes; /* of this struct, as the library has it */
    uint64_t total; /* of the device */
    uint64_t requested, allocated, reserved;
    uint64_t peak_requested, peak_allocated, peak_reserved;
    uint64_t releasable;                           /* of reserved: wholly free pages */
    uint64_t blocks;                               /* live, number */
    uint64_t allocs, frees, failures;              /* number */
    uint64_t pages_made, pages_freed, pages_moved; /* number */
    uint64_t waits;                                /* for streams, number */
    uint64_t wrong_frees;                          /* number */
    uint64_t cap;                                  /* UINT64_MAX: none */
    uint64_t placed, displaced, astray; /* mode plan, requests: see struct plim_engine_stats */
    uint64_t active; /* allocated, and what was freed while other streams still use it */
};

/** plimsoll_alloc_mode() - the word of the mode in force; reads the settings if nobody has yet. */
const char *plimsoll_alloc_mode(void);

/** plimsoll_alloc_stats() - false: the device has not been used. @room: bytes of *out. */
bool plimsoll_alloc_stats(int device, struct plimsoll_alloc_stats *out, size_t room);
void plimsoll_alloc_reset_peaks(int device);

/* One block of a walk. state: 0 live, 1 freed and waiting for streams, 2 free, 3 addresses only; or paused. */
#define PLIMSOLL_ALLOC_PAUSED 4
typedef bool plimsoll_alloc_block_fn(void *ctx, uint64_t addr, uint64_t size, uint64_t requested,
                                     uint64_t stream, uint64_t pool, int state, bool large);

/** plimsoll_alloc_walk() - every block, in the order of addresses within an arena, until `see` says
 * false. `see` must not allocate device memory. */
void plimsoll_alloc_walk(int device, plimsoll_alloc_block_fn *see, void *ctx);

/** plimsoll_alloc_check() - NULL when the structures are sound, else what is wrong. For tests. */
const char *plimsoll_alloc_check(int device);

#ifdef __cplusplus
}
#endif
#endif
