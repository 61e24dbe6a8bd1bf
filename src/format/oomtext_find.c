/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass over text for all anchors at once: Wu and Manber's method ("A fast algorithm for
 * multi-pattern searching", 1994) with blocks of three bytes. Bytes are put into 32 classes (letters
 * without case, blanks, digits, some marks), so that a block is a 15-bit index. A table says for each
 * block how far the window may jump; it jumps over almost everything. A candidate is then compared
 * byte for byte.
 */

#include "format/oomtext_internal.h"

#include "base/num.h"

#include <stdlib.h>

#define BLOCK       3  /* bytes that decide about a jump */
#define WINDOW_MOST 8  /* leading bytes of an anchor that are used for jumping */
#define TABLE_BITS  15 /* three classes of five bits */
#define NO_GRAMMAR  UINT16_MAX
#define ROWS_MOST   1024

struct plim__oom_finder {
    struct plim__oom_grammar *grammars; /* owned, [n] */
    uint16_t *next;                     /* owned, [n]: chain of grammars with the same block */
    uint16_t *head;                     /* owned, [n]: classes of the anchor's first two bytes */
    size_t n;
    size_t window;                   /* bytes, the shortest anchor's length, at most WINDOW_MOST */
    uint8_t shift[1 << TABLE_BITS];  /* safe jump when the window ends with this block */
    uint16_t first[1 << TABLE_BITS]; /* chain of grammars whose window ends with this block */
};

/* Classes 1 to 26 are letters; everything that is not named here is class 0. */
static const uint8_t byte_class[256] = {
    ['a'] = 1,  ['b'] = 2,  ['c'] = 3,  ['d'] = 4,  ['e'] = 5,   ['f'] = 6,   ['g'] = 7,
    ['h'] = 8,  ['i'] = 9,  ['j'] = 10, ['k'] = 11, ['l'] = 12,  ['m'] = 13,  ['n'] = 14,
    ['o'] = 15, ['p'] = 16, ['q'] = 17, ['r'] = 18, ['s'] = 19,  ['t'] = 20,  ['u'] = 21,
    ['v'] = 22, ['w'] = 23, ['x'] = 24, ['y'] = 25, ['z'] = 26,  ['A'] = 1,   ['B'] = 2,
    ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,   ['H'] = 8,   ['I'] = 9,
    ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14,  ['O'] = 15,  ['P'] = 16,
    ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21,  ['V'] = 22,  ['W'] = 23,
    ['X'] = 24, ['Y'] = 25, ['Z'] = 26, [' '] = 27, ['\n'] = 27, ['\t'] = 27, ['\r'] = 27,
    ['0'] = 28, ['1'] = 28, ['2'] = 28, ['3'] = 28, ['4'] = 28,  ['5'] = 28,  ['6'] = 28,
    ['7'] = 28, ['8'] = 28, ['9'] = 28, ['_'] = 29, ['-'] = 30,  ['('] = 31,
};

static uint32_t block_index(const unsigned char *p)
{
    return (uint32_t)byte_class[p[0]] << 10 | (uint32_t)byte_class[p[1]] << 5 | byte_class[p[2]];
}

static uint16_t head_classes(const unsigned char *p)
{
    return (uint16_t)(byte_class[p[0]] << 5 | byte_class[p[1]]);
}

static void add_anchor(struct plim__oom_finder *finder, uint16_t index)
{
    const unsigned char *anchor = (const unsigned char *)finder->grammars[index].anchor;
    size_t last = finder->window - BLOCK;
    for (size_t at = 0; at <= last; at++) {
        uint8_t *shift = &finder->shift[block_index(anchor + at)];
        *shift = last - at < *shift ? (uint8_t)(last - at) : *shift;
    }
    uint16_t *first = &finder->first[block_index(anchor + last)];
    finder->next[index] = *first;
    finder->head[index] = head_classes(anchor);
    *first = index;
}

static bool prepare_rows(struct plim__oom_finder *finder, const struct plim_oom_row *rows,
                         size_t rows_n, unsigned roles, size_t least)
{
    finder->grammars = calloc(rows_n, sizeof(*finder->grammars));
    finder->next = calloc(rows_n, sizeof(*finder->next));
    finder->head = calloc(rows_n, sizeof(*finder->head));
    if (!finder->grammars || !finder->next || !finder->head) {
        return false;
    }
    finder->window = WINDOW_MOST;
    for (size_t i = 0; i < rows_n && i < ROWS_MOST; i++) {
        struct plim__oom_grammar *grammar = &finder->grammars[finder->n];
        if ((roles >> rows[i].role & 1) && plim__oom_prepare(&rows[i], grammar) &&
            grammar->n >= least) {
            finder->window = grammar->n < finder->window ? grammar->n : finder->window;
            finder->n++;
        }
    }
    return true;
}

struct plim__oom_finder *plim__oom_finder_new(unsigned roles, size_t least)
{
    size_t n;
    const struct plim_oom_row *rows = plim__oom_rows(&n);
    return plim__oom_finder_of(rows, n, roles, least);
}

struct plim__oom_finder *plim__oom_finder_of(const struct plim_oom_row *rows, size_t n,
                                             unsigned roles, size_t least)
{
    struct plim__oom_finder *finder = calloc(1, sizeof(*finder));
    if (!finder || !prepare_rows(finder, rows, n, roles, least)) {
        plim__oom_finder_free(finder);
        return NULL;
    }
    memset(finder->shift, (int)(finder->window - BLOCK + 1), sizeof(finder->shift));
    memset(finder->first, 0xff, sizeof(finder->first));
    for (size_t i = 0; i < finder->n; i++) {
        add_anchor(finder, (uint16_t)i);
    }
    return finder;
}

void plim__oom_finder_free(struct plim__oom_finder *finder)
{
    if (finder) {
        free(finder->grammars);
        free(finder->next);
        free(finder->head);
        free(finder);
    }
}

static bool anchor_at(const struct plim__oom_grammar *grammar, struct plim_str text, size_t at)
{
    if (text.n - at < grammar->n) {
        return false;
    }
    for (size_t i = 0; i < grammar->n; i++) {
        if (plim__oom_fold(text.p[at + i]) != grammar->anchor[i]) {
            return false;
        }
    }
    return true;
}

/* The first window end at or behind `end` (its last byte) that has candidates; SIZE_MAX when none. */
static size_t next_candidate(const struct plim__oom_finder *finder, struct plim_str text,
                             size_t end)
{
    const unsigned char *p = (const unsigned char *)text.p;
    while (end < text.n) {
        uint8_t shift = finder->shift[block_index(p + end - (BLOCK - 1))];
        if (shift == 0) {
            return end;
        }
        end += shift;
    }
    return SIZE_MAX;
}

bool plim__oom_find(const struct plim__oom_finder *finder, struct plim_str text, size_t from,
                    size_t *at, size_t *n)
{
    size_t end = from + finder->window - 1;
    while ((end = next_candidate(finder, text, end)) != SIZE_MAX) {
        size_t start = end + 1 - finder->window;
        uint16_t i = finder->first[block_index((const unsigned char *)text.p + end - (BLOCK - 1))];
        uint16_t head = head_classes((const unsigned char *)text.p + start);
        for (; i != NO_GRAMMAR; i = finder->next[i]) {
            if (finder->head[i] == head && anchor_at(&finder->grammars[i], text, start)) {
                *at = start;
                *n = finder->grammars[i].n;
                return true;
            }
        }
        end++;
    }
    return false;
}

void plim__oom_find_each(const struct plim__oom_finder *finder, struct plim_str text,
                         void (*visit)(void *ctx, const struct plim_oom_row *row,
                                       const struct plim__oom_match *match),
                         void *ctx)
{
    struct plim__oom_match match;
    size_t end = finder->window - 1;
    while ((end = next_candidate(finder, text, end)) != SIZE_MAX) {
        size_t start = end + 1 - finder->window;
        uint16_t i = finder->first[block_index((const unsigned char *)text.p + end - (BLOCK - 1))];
        uint16_t head = head_classes((const unsigned char *)text.p + start);
        for (; i != NO_GRAMMAR; i = finder->next[i]) {
            const struct plim__oom_grammar *grammar = &finder->grammars[i];
            if (finder->head[i] == head && anchor_at(grammar, text, start) &&
                plim__oom_match(grammar, text, start, &match)) {
                visit(ctx, grammar->row, &match);
            }
        }
        end++;
    }
}
