/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a seating, and what following it needs to look up. See seating.h. */

#include <plimsoll/engine.h>
#include <plimsoll/seating.h>

#include <stdlib.h>
#include <string.h>

/* ---- text ------------------------------------------------------------------------------------------- */

struct reader {
    const char *at, *end;
    struct plim_seating_fault *fault;
};

static bool wrong(struct reader *r, const char *what)
{
    r->fault->what = what;
    return false;
}

/* The next line that says something, without its end; comments (#) and empty lines are passed over. */
static bool line(struct reader *r, const char **from, const char **to)
{
    while (r->at < r->end) {
        const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
        *from = r->at;
        *to = stop ? stop : r->end;
        r->at = stop ? stop + 1 : r->end;
        r->fault->line++;
        if (*from < *to && **from != '#') {
            return true;
        }
    }
    return wrong(r, "the text ends too early");
}

/* A decimal number of at most 15 digits, and the blank behind it unless the line ends there. */
static bool number(const char **at, const char *to, uint64_t *out)
{
    const char *from = *at;
    uint64_t n = 0;
    while (*at < to && **at >= '0' && **at <= '9' && *at - from < 16) {
        n = n * 10 + (uint64_t)(**at - '0');
        ++*at;
    }
    if (*at == from || *at - from > 15 || (*at < to && **at != ' ')) {
        return false;
    }
    *at += *at < to;
    *out = n;
    return true;
}

/* "word N", N from least to most */
static bool counted(struct reader *r, const char *word, uint64_t least, uint64_t most,
                    uint32_t *out)
{
    const char *from, *to;
    size_t n = strlen(word);
    uint64_t value;
    if (!line(r, &from, &to)) {
        return false;
    }
    if ((size_t)(to - from) <= n || memcmp(from, word, n) != 0) {
        return wrong(r, "\"lanes N\", \"requests N\", \"repeat N\" belong below the first line");
    }
    from += n;
    if (!number(&from, to, &value) || from != to || value < least || value > most) {
        return wrong(r, "the number is no number, or too small or too large");
    }
    *out = (uint32_t)value;
    return true;
}

static bool whole_units(uint64_t bytes)
{
    return bytes % PLIM_ENGINE_UNIT == 0 && bytes <= PLIM_SEATING_BYTES;
}

/* "LANE SIZE PLACE", PLACE a number or "-" */
static bool request(struct reader *r, uint32_t lanes, struct plim_seating_request *out)
{
    const char *from, *to;
    uint64_t lane;
    if (!line(r, &from, &to)) {
        return false;
    }
    if (!number(&from, to, &lane) || lane >= lanes) {
        return wrong(r, "a request begins with the number of a lane below \"lanes\"");
    }
    if (!number(&from, to, &out->size) || out->size == 0 || !whole_units(out->size)) {
        return wrong(r, "a size is a multiple of 512 bytes, above 0");
    }
    out->lane = (uint32_t)lane;
    out->place = PLIM_SEATING_NONE;
    if (to - from == 1 && *from == '-') {
        return true;
    }
    if (!number(&from, to, &out->place) || from != to || !whole_units(out->place) ||
        out->place + out->size > PLIM_SEATING_BYTES) {
        return wrong(r, "a place is a multiple of 512 bytes, or \"-\", and ends the line");
    }
    return true;
}

static bool read_all(struct reader *r, struct plim_seating *out)
{
    const char *from, *to;
    if (!line(r, &from, &to) || (size_t)(to - from) != strlen(PLIM_SEATING_HEAD) ||
        memcmp(from, PLIM_SEATING_HEAD, strlen(PLIM_SEATING_HEAD)) != 0) {
        return wrong(r, "the first line is not \"" PLIM_SEATING_HEAD "\"");
    }
    if (!counted(r, "lanes ", 1, PLIM_SEATING_LANES, &out->lanes) ||
        !counted(r, "requests ", 1, PLIM_SEATING_MOST, &out->n) ||
        !counted(r, "repeat ", 0, out->n - 1, &out->repeat)) {
        return false;
    }
    if (out->n > (size_t)(r->end - r->at)) { /* a line has more than one byte */
        return wrong(r, "the text is too short for so many requests");
    }
    out->requests = calloc(out->n, sizeof *out->requests);
    if (!out->requests) {
        return wrong(r, "no memory for so many requests");
    }
    for (uint32_t i = 0; i < out->n; i++) {
        if (!request(r, out->lanes, &out->requests[i])) {
            return false;
        }
    }
    if (!line(r, &from, &to) || to - from != 3 || memcmp(from, "end", 3) != 0) {
        return wrong(r, "\"end\" belongs behind the last request");
    }
    return true;
}

bool plim_seating_parse(const char *text, size_t bytes, struct plim_seating *out,
                        struct plim_seating_fault *fault)
{
    struct plim_seating p = {0};
    struct reader r = {text, text + bytes, fault};
    *fault = (struct plim_seating_fault){0};
    if (bytes > PLIM_SEATING_FILE) {
        return wrong(&r, "the text is larger than 64 MiB");
    }
    bool good = read_all(&r, &p);
    if (good && !plim_seating_index(&p)) {
        good = wrong(&r, "no memory for so many requests");
    }
    if (!good) {
        plim_seating_free(&p);
        return false;
    }
    *out = p;
    return true;
}

/* ---- looking up ------------------------------------------------------------------------------------- */

uint64_t plim_seating_gram(const uint64_t *sizes)
{
    uint64_t h = 0;
    for (unsigned i = 0; i < PLIM_SEATING_GRAM; i++) {
        h = (h ^ sizes[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h;
}

static bool is_large(const struct plim_seating_request *r)
{
    return r->size > PLIM_ENGINE_SMALL;
}

/* A request and what it is ordered by. */
struct key {
    uint64_t high, low;
    uint32_t request;
};

static int compare(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    if (x->high != y->high) {
        return x->high < y->high ? -1 : 1;
    }
    if (x->low != y->low) {
        return x->low < y->low ? -1 : 1;
    }
    return (x->request > y->request) - (x->request < y->request);
}

/* Heights of the areas, and ranks of the places. @keys: [n], for use here. */
static void rank_places(struct plim_seating *p, struct key *keys)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct plim_seating_request *r = &p->requests[i];
        if (r->place != PLIM_SEATING_NONE) {
            keys[n++] = (struct key){r->lane * 2 + is_large(r), r->place, i};
        }
    }
    qsort(keys, n, sizeof *keys, compare);
    for (uint32_t k = 0; k < n; k++) {
        struct plim_seating_request *r = &p->requests[keys[k].request];
        uint64_t *height = &p->height[r->lane][is_large(r)];
        uint32_t *ranks = &p->ranks[r->lane][is_large(r)];
        bool same = k > 0 && keys[k].high == keys[k - 1].high && keys[k].low == keys[k - 1].low;
        *ranks += !same;
        r->rank = *ranks - 1;
        *height = r->place + r->size > *height ? r->place + r->size : *height;
    }
}

/* The sizes up to and with request i; 0 before the first of all. */
static void sizes_up_to(const struct plim_seating *p, uint32_t i, uint64_t *sizes)
{
    bool once = i < p->repeat, there = true;
    for (uint32_t k = PLIM_SEATING_GRAM; k-- > 0;) {
        sizes[k] = there ? p->requests[i].size : 0;
        if (!once && i == p->repeat) {
            i = p->n; /* the end of the period is before its beginning */
        }
        there = there && i > 0;
        i -= there;
    }
}

static void list_grams(struct plim_seating *p, struct key *keys)
{
    for (uint32_t i = 0; i < p->n; i++) {
        uint64_t sizes[PLIM_SEATING_GRAM];
        sizes_up_to(p, i, sizes);
        p->gram[i] = plim_seating_gram(sizes);
        keys[i] = (struct key){p->gram[i], 0, i};
    }
    qsort(keys, p->n, sizeof *keys, compare);
    for (uint32_t i = 0; i < p->n; i++) {
        p->by_gram[i] = keys[i].request;
    }
}

bool plim_seating_index(struct plim_seating *p)
{
    struct key *keys = calloc(p->n, sizeof *keys);
    uint64_t *gram = calloc(p->n, sizeof *gram);
    uint32_t *by_gram = calloc(p->n, sizeof *by_gram);
    if (!keys || !gram || !by_gram) {
        free(keys);
        free(gram);
        free(by_gram);
        return false;
    }
    free(p->gram);
    free(p->by_gram);
    p->gram = gram;
    p->by_gram = by_gram;
    memset(p->height, 0, sizeof p->height);
    memset(p->ranks, 0, sizeof p->ranks);
    rank_places(p, keys);
    list_grams(p, keys);
    free(keys);
    return true;
}

void plim_seating_free(struct plim_seating *p)
{
    free(p->requests);
    free(p->gram);
    free(p->by_gram);
    *p = (struct plim_seating){0};
}
