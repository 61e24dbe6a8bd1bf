/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_ENGINE_DEVICE_H
#define PLIM_TESTS_ENGINE_DEVICE_H

/*
 * A device for tests of the moving allocator that keeps books: physical pages, mappings, streams that lag
 * behind, graph captures, calls that fail at random. It asserts what a real driver would punish: memory that
 * is taken away under work in flight, a call that a capture forbids, an unmapping that does not match. And blocks
 * of a workload: no two may overlap, and none gets memory that another stream still uses.
 */

#include "unit.h"

#include <plimsoll/engine.h>

#define MIB      (UINT64_C(1) << 20)
#define STREAMS  4
#define HANDLES  4096
#define SLOTS    (1u << 15) /* mapped pages by address: 2 MiB each, one range of addresses for all */
#define SPACE    UINT64_C(0x600000000000)
#define PAGE_MIN (2 * MIB)
#define BLOCKS   512

struct use { /* work in flight on physical memory */
    uint32_t handle;
    uint64_t from, to;
    unsigned stream;
    uint64_t seq;
};

struct held { /* a block of the workload */
    uint64_t addr, size, pool;
    unsigned stream;
    unsigned also; /* bit for each other stream it is used on */
};

struct device {
    struct plim_engine_rounding rounding;
    uint64_t random;
    uint64_t total, used;
    uint64_t next; /* address */
    struct {
        uint64_t size, at;
    } handle[HANDLES];
    uint32_t n_handles;
    uint32_t slot[SLOTS]; /* handle mapped there, + 1 */
    uint64_t submitted[STREAMS], completed[STREAMS];
    struct use use[8192];
    unsigned n_use;
    struct held held[BLOCKS];
    unsigned n_held;
    unsigned trouble;     /* one call in so many fails; 0: none */
    uint64_t most_mapped; /* mappings at the same time; 0: no limit */
    uint64_t most_space;  /* addresses that can be reserved, bytes; 0: no limit */
    bool capturing;
    bool refused; /* the last access call failed: its mappings go at once */
    uint64_t calls, creates, unmaps, mapped;
    uint64_t events; /* recorded and not forgotten */
};

struct reuse {
    unsigned stream; /* that may use it; STREAMS: none */
};

uint64_t engine_roll(struct device *d);

/* Call `see` for each physical piece behind [addr, addr + size). */
void engine_pieces(struct device *d, uint64_t addr, uint64_t size,
                   void (*see)(struct device *d, uint32_t handle, uint64_t from, uint64_t to,
                               void *ctx),
                   void *ctx);

/* For engine_pieces(), with a struct reuse: nothing but that stream's own work may be in flight there. */
void engine_must_be_idle(struct device *d, uint32_t handle, uint64_t from, uint64_t to, void *ctx);
/* For engine_pieces(), with a struct reuse: that stream has work there that is not done yet. */
void engine_put_in_flight(struct device *d, uint32_t handle, uint64_t from, uint64_t to, void *ctx);

/* An engine on a new device; the seed chooses its mode and the sizes of its pages, too. */
struct plim_engine *engine_begin(struct device *d, uint64_t seed, uint64_t total);
/* The same in mode plan. NULL: as above. */
struct plim_engine *engine_begin_planned(struct device *d, uint64_t seed, uint64_t total,
                                         const struct plim_seating *plan);
/* Delete it: everything is given back. */
void engine_finish(struct device *d, struct plim_engine *e);

/* Ask for a block, which becomes the last of `held`. false: there was no memory. */
bool engine_hold(struct device *d, struct plim_engine *e, uint64_t size, unsigned stream,
                 uint64_t pool);
/* Free block i of `held`; the last one takes its number. */
void engine_drop(struct device *d, struct plim_engine *e, unsigned i);
/* Some block is used on some other stream too. */
void engine_share(struct device *d, struct plim_engine *e);
/* The engine's books agree with each other and with the device's. */
void engine_check(const struct device *d, const struct plim_engine *e);

#endif
