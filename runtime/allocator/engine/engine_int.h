/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOCATOR_ENGINE_INT_H
#define PLIM_ALLOCATOR_ENGINE_INT_H

/*
 * Inside the engine: records, arenas, and who does what.
 *
 *   heap.c    blocks and free lists: pure bookkeeping, no driver call
 *   pages.c   pages that are there: which could serve elsewhere, taking them away; fences
 *   fill.c    where a request's place is, and the pages for it: made or moved
 *   arenas.c  arenas: made, found, handed on, given back
 *   engine.c  requests, pending frees, figures
 *   round.c   modes: what sizes are rounded up to
 *   follow.c  mode plan: where in a seating the program is, and the places it says
 *   seating.c  the text of a seating
 *   pause.c   memory given back for a time, addresses kept
 *   check.c   the invariants, for tests
 *
 * Blocks are named by their index in one array of records, 0 is nobody. The blocks of an arena cover its
 * addresses without gaps; neighbours are linked in the order of addresses. Two FREE neighbours, or two
 * VOID ones, do not exist. A page is mapped exactly where no VOID block is.
 *
 * A page is any number of units of small_page long, and begins on any of them. The table of an arena has an
 * entry for each unit: the length of the page that begins there, or how far back it begins, or nothing.
 */

#include <plimsoll/engine.h>
#include <plimsoll/seating.h>

#define BIN_ROWS      36 /* row 0: sizes below 32 units; then one row for each power of two */
#define BIN_COLS      32
#define ARENA_BUCKETS 1024
#define FENCES        8       /* outstanding ones of an arena */
#define BATCH         64      /* pages that change their place at once */
#define PAGE_REST     0x8000u /* in the table of pages: it began so many units before */

struct block { /* 64 bytes */
    uint64_t addr;
    uint64_t size;        /* bytes */
    uint64_t requested;   /* LIVE, PENDING: as asked for */
    uint32_t prev, next;  /* in the arena, by address */
    uint32_t back, forth; /* FREE: free list; VOID: list of voids; unused records: forth */
    uint64_t fence;       /* FREE: the first fence behind its last free */
    uint32_t uses;        /* LIVE: first of the other streams, see struct use */
    uint32_t planned; /* LIVE, PENDING: request of the seating whose place this is, + 1; 0: none */
    uint16_t arena;
    uint8_t state;    /* enum plim_engine_state */
    uint8_t row, col; /* FREE: where in the bins */
    bool unsure;      /* LIVE: used on a stream that there was no record for: never FREE again */
    uint8_t pad[2];
};

/*
 * Streams that a block is used on beside its own. Of a LIVE block: a chain of them. When it is freed, it waits,
 * and each becomes a member of a batch: those that wait for the same event. Batches are records too, and so are
 * the queues in which those of a stream stand in the order of their events: the first alone has to be asked.
 */
struct use {
    uint64_t what;   /* batch: the event; queue: the last batch */
    uint64_t stream; /* of a LIVE block's, of a queue; batch: the round in which it was made */
    uint32_t next;   /* of the same block, batch, queue; queue: the next queue; or next unused */
    uint32_t block;  /* member: the block; batch: the first member; queue: the first batch */
};

/* A growing array in reserved address space: never moves, touched memory only. */
struct table {
    void *base;
    uint64_t room;   /* records that fit */
    uint32_t n;      /* records used, record 0 is nobody */
    uint32_t unused; /* chain of records given back */
};

struct arena_key { /* whom an arena serves */
    uint64_t stream, pool;
    uint64_t height; /* of an area of the seating, bytes; 0: an ordinary arena */
    bool large;
};

struct arena {
    struct arena_key key;
    uint64_t base, size; /* addresses, bytes; size 0: not reserved */
    uint32_t first;      /* block at base */
    bool paused;         /* its pages are given back, see pause.c */
    bool gone;           /* its pool was dropped: serves nobody, its free pages serve all */
    uint32_t chain;      /* next arena of the same hash bucket */
    uint8_t shift;    /* bytes of a granule, as a power of two: at most one block starts in each */
    uint32_t *starts; /* granule -> live block that starts there, 0: none */
    uint16_t
        *pages; /* unit of pages -> units of the page that starts there; or PAGE_REST; 0: none */
    uint64_t *handles;   /* unit of pages -> handle of the page that starts there */
    uint32_t voids;      /* first of the VOID blocks */
    uint64_t free_whole; /* bytes of wholly free pages: what FREE blocks could lose */
    struct {
        uint64_t next; /* number the next fence gets */
        uint32_t n;    /* outstanding: numbers next - n .. next - 1 */
        uint64_t event[FENCES];
    } fence;
    uint64_t rows; /* rows with something in them */
    uint32_t cols[BIN_ROWS];
    uint32_t bin[BIN_ROWS][BIN_COLS]; /* first FREE block */
};

/* The live blocks of an area of the seating, found by rank: a bit for each rank at which one starts, and
 * above each level of bits one that says which of its words are not 0. */
#define AREA_LEVELS 4 /* 64^4 ranks and more than a seating has */

struct area {
    uint32_t arena; /* 0: not opened */
    bool hopeless;  /* there are no addresses or tables for it */
    uint64_t *bits[AREA_LEVELS];
    uint32_t *block; /* rank -> block */
    uint64_t bytes;  /* of the tables, which start at bits[0] */
};

struct follower {
    const struct plim_seating *plan;    /* borrowed; NULL: the mode is another */
    uint32_t next;                      /* request that is expected */
    uint32_t score;                     /* how well the program follows, see follow.c */
    uint32_t doubt;                     /* the same, of the latest requests alone */
    bool in_force;                      /* places are taken */
    bool spared;                        /* free pages of areas do not serve others */
    uint64_t latest[PLIM_SEATING_GRAM]; /* sizes, oldest first */
    uint64_t stream[PLIM_SEATING_LANES];
    bool bound[PLIM_SEATING_LANES]; /* the lane's stream is known */
    struct area area[PLIM_SEATING_LANES][2];
};

struct plim_engine {
    struct plim_engine_config config;
    struct plim_engine_rounding rounding;
    struct follower follow;
    struct table blocks;                  /* struct block */
    struct table uses;                    /* struct use */
    struct table arenas;                  /* struct arena; index 0 is one too */
    uint32_t latest[4];                   /* arena of the latest request, see latest_of() */
    uint32_t bucket[ARENA_BUCKETS];       /* stream, pool and size class -> newest arena */
    uint16_t by_base[PLIM_ENGINE_ARENAS]; /* arenas in the order of their addresses */
    uint32_t n_by_base;
    uint32_t pending;  /* first queue of batches */
    uint64_t round;    /* of events for such batches */
    uint32_t deferred; /* PENDING blocks that have no event yet, chained by `forth` */
    uint32_t burst;    /* frees of such blocks since the last request */
    /* Since the beginning: what is made or moved depends on it, not on who resets the peaks of the figures. */
    uint64_t highest_live;
    uint64_t cap;
    unsigned page_shift; /* small_page as a power of two */
    struct plim_engine_stats stats;
};

static inline struct block *block_at(const struct plim_engine *e, uint32_t i)
{
    return &((struct block *)e->blocks.base)[i];
}

static inline struct use *use_at(const struct plim_engine *e, uint32_t i)
{
    return &((struct use *)e->uses.base)[i];
}

static inline struct arena *arena_at(const struct plim_engine *e, uint32_t i)
{
    return &((struct arena *)e->arenas.base)[i];
}

/* Fences below this number have completed. */
static inline uint64_t fences_done(const struct arena *a)
{
    return a->fence.next - a->fence.n;
}

static inline uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) & ~(unit - 1);
}

static inline uint16_t *entry_at(const struct plim_engine *e, const struct arena *a, uint64_t addr)
{
    return &a->pages[(addr - a->base) >> e->page_shift];
}

/* The handle of the page that starts at an address. */
static inline uint64_t *handle_at(const struct plim_engine *e, const struct arena *a, uint64_t addr)
{
    return &a->handles[(addr - a->base) >> e->page_shift];
}

/* Where the page that has an address begins. There must be one. */
static inline uint64_t page_from(const struct plim_engine *e, const struct arena *a, uint64_t addr)
{
    unsigned entry = *entry_at(e, a, addr), back = entry & PAGE_REST ? entry & ~PAGE_REST : 0;
    return (addr & ~(e->config.small_page - 1)) - ((uint64_t)back << e->page_shift);
}

/* Bytes of the page that starts at an address. */
static inline uint64_t page_bytes(const struct plim_engine *e, const struct arena *a, uint64_t from)
{
    return (uint64_t)*entry_at(e, a, from) << e->page_shift;
}

/* Where in `latest`: small, large, small and large areas. */
static inline unsigned latest_of(const struct arena_key *key)
{
    return (key->height ? 2u : 0u) + key->large;
}

/* So many bytes more are live. */
static inline void count_live(struct plim_engine *e, uint64_t size, uint64_t requested)
{
    struct plim_engine_stats *s = &e->stats;
    s->live += size;
    s->requested += requested;
    s->peak_live = s->live > s->peak_live ? s->live : s->peak_live;
    e->highest_live = s->live > e->highest_live ? s->live : e->highest_live;
    s->peak_requested = s->requested > s->peak_requested ? s->requested : s->peak_requested;
}

static inline void note_reserved(struct plim_engine *e)
{
    struct plim_engine_stats *s = &e->stats;
    s->peak_reserved = s->reserved > s->peak_reserved ? s->reserved : s->peak_reserved;
}

/* Pages without a place, and their bytes. */
struct loot {
    unsigned n;
    uint64_t bytes;
    struct {
        uint64_t handle, size;
    } page[BATCH];
};

/* heap.c */
/* Zeroed memory that is used up only where it is touched; NULL: no addresses. */
void *plim__mv_space(uint64_t bytes);
bool plim__mv_table_open(struct table *t, size_t record, uint64_t room);
void plim__mv_table_close(struct table *t, size_t record);
/* Are there records for n more blocks? Whoever makes blocks asks first. */
bool plim__mv_blocks_spare(const struct plim_engine *e, unsigned n);
uint32_t plim__mv_block_new(struct plim_engine *e);
void plim__mv_block_gone(struct plim_engine *e, uint32_t i);
uint32_t plim__mv_use_new(struct plim_engine *e);
void plim__mv_use_gone(struct plim_engine *e, uint32_t i);
/* Where in the bins a FREE block of `size` bytes is. */
void plim__mv_cell(uint64_t size, unsigned *row, unsigned *col);
void plim__mv_bin_put(struct plim_engine *e, struct arena *a, uint32_t i);
void plim__mv_bin_take(struct plim_engine *e, struct arena *a, uint32_t i);
uint32_t plim__mv_bin_find(struct plim_engine *e, const struct arena *a, uint64_t size);
void plim__mv_void_put(struct plim_engine *e, struct arena *a, uint32_t i);
void plim__mv_void_take(struct plim_engine *e, struct arena *a, uint32_t i);
/* Cut block i, in no list, behind `size` bytes; the rest: a block of the same state in no list. */
uint32_t plim__mv_block_cut(struct plim_engine *e, uint32_t i, uint64_t size);
/* Block i swallows its right neighbour, which must be in no list. */
void plim__mv_block_join(struct plim_engine *e, uint32_t i);
/* Make i a FREE block, one with FREE neighbours, and list it. It must be in no list. */
uint32_t plim__mv_block_free(struct plim_engine *e, struct arena *a, uint32_t i, uint64_t fence);
/* Cut [from, from + size) out of FREE block i, which is in no list; what is left over is free memory. Returns the
 * block of these addresses, with which nobody merges. */
uint32_t plim__mv_block_carve(struct plim_engine *e, struct arena *a, uint32_t i, uint64_t from,
                              uint64_t size);
/* Make i VOID, one with VOID neighbours, and list it. It must be in no list. */
void plim__mv_block_void(struct plim_engine *e, struct arena *a, uint32_t i);
/* The wholly free pages of a FREE block: [*lo, *hi). */
void plim__mv_whole_pages(const struct plim_engine *e, const struct arena *a, const struct block *b,
                          uint64_t *lo, uint64_t *hi);

/* arenas.c */
/* An arena for the key; 0: no addresses, records or tables. */
uint32_t plim__mv_arena_open(struct plim_engine *e, const struct arena_key *key);
/* The newest arena of the key; 0: none. */
uint32_t plim__mv_arena_of(const struct plim_engine *e, const struct arena_key *key);
/* The arena that has an address; NULL: none. */
struct arena *plim__mv_arena_at_addr(const struct plim_engine *e, uint64_t addr);
/* Its pool is gone: it serves nobody, its free pages serve all. */
void plim__mv_arena_unlist(struct plim_engine *e, uint32_t i);
void plim__mv_arena_close(struct plim_engine *e, struct arena *a);

/* pause.c */
typedef bool plim__mv_page_fn(struct plim_engine *e, struct arena *a, uint64_t at, uint64_t page);
/* Call fn for each page below `until` that the blocks of an arena have, in the order of addresses, until it
 * says false. Returns where that was, or `until`. */
uint64_t plim__mv_each_page(struct plim_engine *e, struct arena *a, uint64_t until,
                            plim__mv_page_fn *fn);
/* Is the pool of the key paused? */
bool plim__mv_pool_paused(const struct plim_engine *e, const struct arena_key *key);
/* Unmap a page and give it back to the driver: a plim__mv_page_fn. */
bool plim__mv_page_drop(struct plim_engine *e, struct arena *a, uint64_t at, uint64_t page);

/* pages.c */
void plim__mv_fence_record(struct plim_engine *e, struct arena *a);
/* Enter a page into the table. */
void plim__mv_page_set(const struct plim_engine *e, struct arena *a, uint64_t at, uint64_t size,
                       uint64_t handle);
/* Unmap the pages of [lo, hi), which fit into *loot, take them out of the table and add them to it. */
void plim__mv_unmap(struct plim_engine *e, struct arena *a, uint64_t lo, uint64_t hi,
                    struct loot *loot);
/* Has it free pages, and may they serve others? Those of a private pool in use may not, those of an area that
 * the program will want again as long as there are others. */
bool plim__mv_may_loot(const struct plim_engine *e, const struct arena *a);
/* Take free pages of all arenas, of `own` first: `most` bytes at most, and a BATCH. @wait: also those that
 * are not idle yet. */
void plim__mv_loot(struct plim_engine *e, uint32_t own, uint64_t most, bool wait,
                   struct loot *loot);
/* Give pages back to the driver; one free page. False: there is none. */
void plim__mv_give_back(struct plim_engine *e, const struct loot *loot);
bool plim__mv_release_one(struct plim_engine *e, bool wait);
void plim__mv_pages_trim(struct plim_engine *e, uint32_t arena);

/* fill.c */
/* A block of `size` bytes with all its pages, FREE and in no list; 0: the device has no memory for it, or
 * the arena no place. New pages are of `page` bytes at most. Needs PLIM__MV_GROW_BLOCKS spare records. */
#define PLIM__MV_GROW_BLOCKS 8
uint32_t plim__mv_pages_grow(struct plim_engine *e, uint32_t arena, uint64_t size, uint64_t page,
                             unsigned flags);
struct fill { /* addresses that get pages */
    struct arena *a;
    uint32_t arena;
    uint64_t lo;
    uint64_t at, need; /* [lo, at) has pages, [at, need) misses them */
    uint64_t end;      /* new pages may reach to here, from `need` on for others */
    uint64_t page;     /* most bytes of a new page */
    unsigned flags;
};
/* Fill f->lo .. f->need as far as possible, for a request of `size` bytes. They must belong to a block in
 * no list with which nobody merges. */
void plim__mv_pages_fill(struct plim_engine *e, struct fill *f, uint64_t size);
/* Has the arena addresses for such a block? */
bool plim__mv_pages_place(struct plim_engine *e, const struct arena *a, uint64_t size);

/* engine.c */
/* Most bytes of new pages for a request. */
uint64_t plim__mv_page_for(const struct plim_engine *e, const struct arena_key *key, uint64_t size);

/* follow.c */
void plim__mv_follow_open(struct plim_engine *e, const struct plim_seating *plan);
void plim__mv_follow_close(struct plim_engine *e);
/* A block of `size` bytes at the place that the seating has for this request, in no list; 0: it is not as
 * planned, has no place, or the place is not free. */
uint32_t plim__mv_follow(struct plim_engine *e, uint64_t size, uint64_t stream, unsigned flags);
/* Block i, at its place until now, is free. */
void plim__mv_follow_freed(struct plim_engine *e, uint32_t i);
/* Do the areas know block i? For tests. */
bool plim__mv_follow_knows(const struct plim_engine *e, uint32_t i);

#endif
