/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOCATOR_ENGINE_INT_H
#define PLIM_ALLOCATOR_ENGINE_INT_H

/*
 * Inside the engine: records, arenas, and who does what.
 *
 *   heap.c    blocks and free lists: pure bookkeeping, no driver call
 *   pages.c   pages: make, move, give back; fences
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
 * Pages have sizes, powers of two. An arena is divided into slots of equal length, and the pages of a slot
 * are all of one size, so that the page of an address is found by a look into a table, a page is aligned
 * to its size, and blocks run on from slot to slot whatever the pages are. A slot without a page has no
 * size: it gets one with its next page.
 */

#include <plimsoll/engine.h>
#include <plimsoll/seating.h>

#define BIN_ROWS      36 /* row 0: sizes below 32 units; then one row for each power of two */
#define BIN_COLS      32
#define ARENA_BUCKETS 1024
#define FENCES        8 /* outstanding ones of an arena */

struct block { /* 64 bytes */
    uint64_t addr;
    uint64_t size;        /* bytes */
    uint64_t requested;   /* LIVE, PENDING: as asked for */
    uint32_t prev, next;  /* in the arena, by address */
    uint32_t back, forth; /* FREE: free list; VOID: list of voids; unused records: forth */
    uint32_t fence;       /* FREE: the first fence behind its last free */
    uint32_t uses;        /* LIVE: first of the other streams, see struct use */
    uint16_t arena;
    uint8_t state;    /* enum plim_engine_state */
    uint8_t row, col; /* FREE: where in the bins */
    uint8_t pad[7];
    uint32_t planned; /* LIVE, PENDING: request of the seating whose place this is, + 1; 0: none */
};

struct use { /* a stream that a live block is used on, or an event that a pending block waits for */
    uint64_t what;  /* stream, or event */
    uint32_t next;  /* of the same block; unused records: next unused */
    uint32_t block; /* pending queue: the block */
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
    uint8_t shift;     /* bytes of a granule, as a power of two: at most one block starts in each */
    uint32_t *starts;  /* granule -> live block that starts there, 0: none */
    uint8_t *pages;    /* slot -> size of its pages as a power of two; 0: it has none */
    uint64_t *handles; /* address / smallest page -> handle of the page that starts there */
    uint32_t voids;    /* first of the VOID blocks */
    uint64_t free_whole; /* bytes of wholly free pages: what FREE blocks could lose */
    struct {
        uint32_t next; /* number the next fence gets */
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
    uint32_t pending; /* first of the queue of uses that wait, oldest first */
    uint32_t pending_last;
    uint32_t deferred; /* PENDING blocks freed under capture, chained by `forth` */
    uint64_t cap;
    uint64_t slot; /* bytes */
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
static inline uint32_t fences_done(const struct arena *a)
{
    return a->fence.next - a->fence.n;
}

static inline uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) & ~(unit - 1);
}

/* Size of the pages in the slot of an address; 0: it has none. */
static inline uint64_t page_at(const struct plim_engine *e, const struct arena *a, uint64_t addr)
{
    unsigned log = a->pages[(addr - a->base) / e->slot];
    return log ? UINT64_C(1) << log : 0;
}

/* The handle of the page that starts at an address. */
static inline uint64_t *handle_at(const struct plim_engine *e, const struct arena *a, uint64_t addr)
{
    return &a->handles[(addr - a->base) / e->config.small_page];
}

static inline uint64_t slot_end(const struct plim_engine *e, uint64_t addr)
{
    return (addr & ~(e->slot - 1)) + e->slot;
}

/* Where in `latest`: small, large, small and large areas. */
static inline unsigned latest_of(const struct arena_key *key)
{
    return (key->height ? 2u : 0u) + key->large;
}

/* Size of the pages that an address of a VOID block will have when new ones are of `page` bytes. */
static inline uint64_t page_to_be(const struct plim_engine *e, const struct arena *a, uint64_t addr,
                                  uint64_t page)
{
    uint64_t has = page_at(e, a, addr);
    return has ? has : page;
}

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
void plim__mv_bin_put(struct plim_engine *e, struct arena *a, uint32_t i);
void plim__mv_bin_take(struct plim_engine *e, struct arena *a, uint32_t i);
uint32_t plim__mv_bin_find(const struct plim_engine *e, const struct arena *a, uint64_t size);
void plim__mv_void_put(struct plim_engine *e, struct arena *a, uint32_t i);
void plim__mv_void_take(struct plim_engine *e, struct arena *a, uint32_t i);
/* Cut block i, in no list, behind `size` bytes; the rest: a block of the same state in no list. */
uint32_t plim__mv_block_cut(struct plim_engine *e, uint32_t i, uint64_t size);
/* Block i swallows its right neighbour, which must be in no list. */
void plim__mv_block_join(struct plim_engine *e, uint32_t i);
/* Make i a FREE block, one with FREE neighbours, and list it. It must be in no list. */
uint32_t plim__mv_block_free(struct plim_engine *e, struct arena *a, uint32_t i, uint32_t fence);
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
/* Unmap a page and give it back to the driver: a plim__mv_page_fn. */
bool plim__mv_page_drop(struct plim_engine *e, struct arena *a, uint64_t at, uint64_t page);

/* pages.c */
/* A block of `size` bytes with all its pages, FREE and in no list; 0: the device has no memory for it, or
 * the arena no place. Slots without pages get those of `page` bytes, or smaller ones when there is no
 * other memory left. Needs PLIM__MV_GROW_BLOCKS spare records. */
#define PLIM__MV_GROW_BLOCKS 8
uint32_t plim__mv_pages_grow(struct plim_engine *e, uint32_t arena, uint64_t size, uint64_t page,
                             unsigned flags);
struct fill { /* addresses that get pages */
    struct arena *a;
    uint32_t arena;
    uint64_t at, end; /* still without pages */
    uint64_t need;    /* those below are needed: end can come down to the page above */
    uint64_t page;    /* of slots that have none */
    unsigned flags;
};
/* Fill f->at .. f->end as far as possible, for a request of `size` bytes. They must belong to a block in
 * no list with which nobody merges. */
void plim__mv_pages_fill(struct plim_engine *e, struct fill *f, uint64_t size);
/* Has the arena addresses for such a block? */
bool plim__mv_pages_place(const struct plim_engine *e, const struct arena *a, uint64_t size);
void plim__mv_pages_trim(struct plim_engine *e, uint32_t arena);

/* engine.c */
/* Size of new pages for a request. */
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
