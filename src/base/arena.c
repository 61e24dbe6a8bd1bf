/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks of growing size (64 KiB up to 4 MiB, or one allocation's own size), newest first. A rewind
 * frees the chunks that are younger than the mark. Under AddressSanitizer the unused tail of each chunk
 * is poisoned, so that running over an allocation's end is caught.
 */

#include "base/arena.h"

#include "base/num.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#    define PLIM__ASAN 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define PLIM__ASAN 1
#    endif
#endif
#ifdef PLIM__ASAN
#    include <sanitizer/asan_interface.h>
#    define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#    define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#    define POISON(p, n)   ((void)(p), (void)(n))
#    define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#define ALIGN     16u
#define CHUNK_MIN (64u * 1024u)
#define CHUNK_MAX (4u * 1024u * 1024u)

struct plim_arena_chunk {
    struct plim_arena_chunk *older;
    size_t cap;  /* bytes of data */
    size_t fill; /* bytes used */
    size_t pad;  /* keeps data 16-byte aligned */
    char data[];
};

_Static_assert(sizeof(struct plim_arena_chunk) % ALIGN == 0, "data must be aligned");

void plim_arena_init(struct plim_arena *arena, uint64_t budget)
{
    *arena = (struct plim_arena){.budget = budget ? budget : UINT64_MAX};
}

static void drop_head(struct plim_arena *arena)
{
    struct plim_arena_chunk *chunk = arena->head;
    arena->head = chunk->older;
    arena->used -= sizeof(*chunk) + chunk->cap;
    UNPOISON(chunk->data, chunk->cap);
    free(chunk);
}

void plim_arena_fini(struct plim_arena *arena)
{
    while (arena->head) {
        drop_head(arena);
    }
}

/* A new head chunk with room for n bytes. */
static enum plim_status add_chunk(struct plim_arena *arena, size_t n, struct plim_err *err)
{
    size_t last = arena->head ? arena->head->cap : CHUNK_MIN / 2;
    size_t cap = last * 2 > CHUNK_MAX ? CHUNK_MAX : last * 2;
    cap = n > cap ? n : cap;
    uint64_t left = plim_sub_sat(arena->budget, arena->used);
    if (sizeof(struct plim_arena_chunk) + cap > left) {
        cap = n; /* near the budget take only what is needed */
    }
    uint64_t bytes;
    if (plim_add_overflows(sizeof(struct plim_arena_chunk), cap, &bytes) || bytes > left) {
        return plim__fail(err, PLIM_E_BUDGET, "more than the budget of %llu bytes would be needed",
                          (unsigned long long)arena->budget);
    }
    struct plim_arena_chunk *chunk = malloc((size_t)bytes);
    if (!chunk) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %llu bytes", (unsigned long long)bytes);
    }
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): bytes includes the header, it is never 0 */
    *chunk = (struct plim_arena_chunk){.older = arena->head, .cap = cap};
    POISON(chunk->data, cap);
    arena->head = chunk;
    arena->used += bytes;
    return PLIM_OK;
}

enum plim_status plim_arena_alloc(struct plim_arena *arena, size_t n, void **out,
                                  struct plim_err *err)
{
    if (n > PTRDIFF_MAX - ALIGN) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu bytes", n);
    }
    size_t padded = (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (!arena->head || arena->head->cap - arena->head->fill < padded) {
        PLIM_TRY(add_chunk(arena, padded, err));
    }
    char *p = arena->head->data + arena->head->fill;
    arena->head->fill += padded;
    UNPOISON(p, n);
    memset(p, 0, n);
    *out = p;
    return PLIM_OK;
}

enum plim_status plim_arena_array(struct plim_arena *arena, size_t n, size_t size, void **out,
                                  struct plim_err *err)
{
    uint64_t bytes;
    if (plim_mul_overflows(n, size, &bytes) || bytes > PTRDIFF_MAX) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu elements of %zu bytes", n, size);
    }
    return plim_arena_alloc(arena, (size_t)bytes, out, err);
}

enum plim_status plim_arena_str(struct plim_arena *arena, struct plim_str s, struct plim_str *out,
                                struct plim_err *err)
{
    void *p;
    if (s.n > PTRDIFF_MAX - ALIGN) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu bytes", s.n);
    }
    PLIM_TRY(plim_arena_alloc(arena, s.n + 1, &p, err));
    if (s.n > 0) {
        memcpy(p, s.p, s.n);
    }
    *out = (struct plim_str){p, s.n};
    return PLIM_OK;
}

enum plim_status plim_arena_text(struct plim_arena *arena, const char *z, const char **out,
                                 struct plim_err *err)
{
    struct plim_str copy;
    PLIM_TRY(plim_arena_str(arena, plim_str_from(z), &copy, err));
    *out = copy.p;
    return PLIM_OK;
}

const char *plim_arena_sayf(struct plim_arena *arena, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    void *p = NULL;
    if (n < 0 || plim_arena_alloc(arena, (size_t)n + 1, &p, NULL) != PLIM_OK) {
        arena->starved = true;
    } else {
        vsnprintf(p, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    return p ? p : "";
}

enum plim_status plim_arena_status(const struct plim_arena *arena, struct plim_err *err)
{
    return arena->starved ? plim__fail(err, PLIM_E_NOMEM, "no memory for the texts of the answer")
                          : PLIM_OK;
}

struct plim_arena_mark plim_arena_mark(const struct plim_arena *arena)
{
    return (struct plim_arena_mark){arena->head, arena->head ? arena->head->fill : 0};
}

void plim_arena_rewind(struct plim_arena *arena, struct plim_arena_mark mark)
{
    while (arena->head && arena->head != mark.head) {
        drop_head(arena);
    }
    if (arena->head) {
        POISON(arena->head->data + mark.fill, arena->head->fill - mark.fill);
        arena->head->fill = mark.fill;
    }
}
