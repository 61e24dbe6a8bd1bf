/* SPDX-License-Identifier: Apache-2.0 */
/* See seating.h. */

#include "replay/seating.h"

#include "base/num.h"
#include "base/vec.h"

#include <plimsoll/engine.h>

#include <stdlib.h>

#define PERIODS_SEEN 4                   /* by which lifetimes are judged */
#define MOST_PLACED  32768               /* blocks of an area that get places */
#define MOST_BYTES   (UINT64_C(1) << 62) /* of all blocks of an area */
#define NEVER        UINT64_MAX

struct seen {       /* an allocation outside of private pools */
    uint64_t size;  /* bytes, rounded up to units */
    uint64_t freed; /* number of the first such allocation after its free; NEVER */
    int64_t stream;
};

struct maker {
    const struct plim_requests *q;
    PLIM_VEC(struct seen) seen;
    int64_t stream[PLIM_SEATING_LANES]; /* of the lanes */
    uint64_t base;                      /* number in `seen` of request 0 of the seating */
    uint32_t *length;                   /* owned, [requests of the seating]: 0: no place */
    struct plim_stay *stays;            /* owned, [requests of the seating]: those of an area */
    uint32_t *whose;                    /* owned: their requests */
    struct plim_seating *out;
    struct plim_seating_facts *facts;
};

/* ---- what is there ---------------------------------------------------------------------------------- */

static enum plim_status collect(struct maker *m, struct plim_err *err)
{
    const struct plim_requests *q = m->q;
    uint64_t *by_slot = calloc((size_t)q->slots + 1, sizeof *by_slot); /* number + 1 */
    enum plim_status st = by_slot ? plim_vec_reserve(&m->seen, q->allocs, err)
                                  : plim__fail(err, PLIM_E_NOMEM, "no memory for a seating");
    for (size_t i = 0; st == PLIM_OK && i < q->items.n; i++) {
        const struct plim_request *r = &q->items.items[i];
        enum plim_request_kind kind = plim_request_kind(r);
        if (kind == PLIM_REQUEST_ALLOC) {
            struct plim_lane lane = q->lanes.items[plim_request_lane(r)];
            uint64_t units = r->size / PLIM_ENGINE_UNIT + (r->size % PLIM_ENGINE_UNIT > 0);
            struct seen s = {units * PLIM_ENGINE_UNIT, NEVER,
                             q->snapshot->streams.items[lane.stream]};
            st = lane.pool == 0 ? plim_vec_push(&m->seen, err, s) : PLIM_OK;
            by_slot[r->slot] = lane.pool == 0 ? m->seen.n : 0;
        } else if ((kind == PLIM_REQUEST_FREE || kind == PLIM_REQUEST_FREE_END) &&
                   by_slot[r->slot]) {
            m->seen.items[by_slot[r->slot] - 1].freed = m->seen.n;
            by_slot[r->slot] = 0;
        }
    }
    free(by_slot);
    return st;
}

static uint64_t mixed(uint64_t h)
{
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
    return h ^ (h >> 29);
}

static enum plim_status find_period(struct maker *m, struct plim_err *err)
{
    uint64_t *keys = calloc(m->seen.n + 1, sizeof *keys);
    if (!keys) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a seating");
    }
    for (size_t i = 0; i < m->seen.n; i++) {
        const struct seen *s = &m->seen.items[i];
        keys[i] = mixed(mixed(s->size) + (uint64_t)s->stream);
    }
    enum plim_status st = plim_period_find(keys, m->seen.n, &m->facts->period, err);
    free(keys);
    if (st == PLIM_E_NOTFOUND) {
        plim__err_hint(err, "a seating needs a recording with at least two whole steps of a "
                            "program that asks for the same sizes in each");
    }
    return st;
}

/* ---- lifetimes -------------------------------------------------------------------------------------- */

/* Number in `seen` of the first request of the first whole period. */
static uint64_t first_period(const struct maker *m)
{
    const struct plim_period *p = &m->facts->period;
    return p->first + p->n % p->length;
}

/* The longest life of request k of the period in the last periods, in requests; NEVER: longer than two. */
static uint64_t life_of(const struct maker *m, uint64_t k)
{
    const struct plim_period *p = &m->facts->period;
    uint64_t periods = p->n / p->length, most = 0;
    uint64_t from = periods > PERIODS_SEEN + 1 ? periods - 1 - PERIODS_SEEN : 0;
    for (uint64_t c = from; c + 1 < periods; c++) {
        uint64_t at = first_period(m) + c * p->length + k;
        uint64_t freed = m->seen.items[at].freed;
        uint64_t life = freed == NEVER ? NEVER : freed - at;
        if (life == NEVER && at + 2 * p->length > m->seen.n) {
            continue; /* the recording ends too early to tell */
        }
        most = plim_max_u64(most, life);
    }
    return most > 0 && most <= 2 * p->length ? most : NEVER;
}

/* How many requests the seating has, and which. */
static enum plim_status choose_requests(struct maker *m, struct plim_err *err)
{
    const struct plim_period *p = &m->facts->period;
    if (p->length > PLIM_SEATING_MOST) {
        return plim__fail(err, PLIM_E_UNSUPPORTED,
                          "the period has %llu requests, a seating at most %u",
                          (unsigned long long)p->length, PLIM_SEATING_MOST);
    }
    m->facts->periods = 1;
    for (uint64_t k = 0; k < p->length && 2 * p->length <= PLIM_SEATING_MOST; k++) {
        uint64_t life = life_of(m, k);
        m->facts->periods = life != NEVER && life > p->length ? 2 : m->facts->periods;
    }
    uint64_t again = p->length * m->facts->periods, once = first_period(m);
    once = m->q->complete && once + again <= PLIM_SEATING_MOST ? once : 0;
    m->base = first_period(m) - once;
    m->out->n = (uint32_t)(once + again);
    m->out->repeat = m->facts->once = (uint32_t)once;
    return PLIM_OK;
}

/* Moments for which request i of the seating is there; 0: it gets no place. */
static uint32_t length_of(const struct maker *m, uint32_t i)
{
    const struct plim_seating *out = m->out;
    if (i < out->repeat) {
        uint64_t freed = m->seen.items[m->base + i].freed;
        uint64_t length = freed == NEVER ? NEVER : freed - m->base - i;
        return length < PLIM_STAY_FOREVER ? (uint32_t)length : PLIM_STAY_FOREVER;
    }
    uint64_t life = life_of(m, (i - out->repeat) % m->facts->period.length);
    return life <= out->n - out->repeat ? (uint32_t)life : 0;
}

/* ---- requests and places ------------------------------------------------------------------------------ */

static enum plim_status lane_of(struct maker *m, int64_t stream, uint32_t *out,
                                struct plim_err *err)
{
    for (*out = 0; *out < m->out->lanes; ++*out) {
        if (m->stream[*out] == stream) {
            return PLIM_OK;
        }
    }
    if (m->out->lanes == PLIM_SEATING_LANES) {
        return plim__fail(err, PLIM_E_UNSUPPORTED,
                          "the period uses more than %u streams beside the default one",
                          PLIM_SEATING_LANES - 1);
    }
    m->stream[m->out->lanes++] = stream;
    return PLIM_OK;
}

static enum plim_status list_requests(struct maker *m, struct plim_err *err)
{
    uint64_t period = m->facts->period.length;
    struct plim_seating *out = m->out;
    out->lanes = 1;
    out->requests = calloc(out->n, sizeof *out->requests);
    m->length = calloc(out->n, sizeof *m->length);
    m->stays = calloc(out->n, sizeof *m->stays);
    m->whose = calloc(out->n, sizeof *m->whose);
    if (!out->requests || !m->length || !m->stays || !m->whose) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a seating");
    }
    for (uint32_t i = 0; i < out->n; i++) {
        uint64_t again = i < out->repeat ? 0 : (i - out->repeat) / period * period;
        const struct seen *s = &m->seen.items[m->base + i - again];
        struct plim_seating_request *r = &out->requests[i];
        *r = (struct plim_seating_request){.size = s->size, .place = PLIM_SEATING_NONE};
        if (s->size == 0 || s->size > PLIM_SEATING_BYTES / 2) {
            return plim__fail(err, PLIM_E_UNSUPPORTED, "the program asks for %llu bytes at once",
                              (unsigned long long)s->size);
        }
        PLIM_TRY(lane_of(m, s->stream, &r->lane, err));
        m->length[i] = length_of(m, i);
    }
    return PLIM_OK;
}

struct weight {
    double bytes_by_moments;
    uint32_t at; /* in stays */
};

static int heavier(const void *a, const void *b)
{
    const struct weight *x = a, *y = b;
    if (x->bytes_by_moments != y->bytes_by_moments) {
        return x->bytes_by_moments > y->bytes_by_moments ? -1 : 1;
    }
    return (x->at > y->at) - (x->at < y->at);
}

static int by_number(const void *a, const void *b)
{
    const struct weight *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Of more blocks than can be placed in good time, those that take most. */
static enum plim_status keep_heavy(struct maker *m, uint32_t *n, struct plim_err *err)
{
    if (*n <= MOST_PLACED) {
        return PLIM_OK;
    }
    struct weight *weights = calloc(*n, sizeof *weights);
    if (!weights) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a seating");
    }
    for (uint32_t i = 0; i < *n; i++) {
        weights[i] = (struct weight){(double)m->stays[i].size * m->stays[i].length, i};
    }
    qsort(weights, *n, sizeof *weights, heavier);
    *n = MOST_PLACED;
    qsort(weights, *n, sizeof *weights, by_number);
    for (uint32_t i = 0; i < *n; i++) {
        m->stays[i] = m->stays[weights[i].at];
        m->whose[i] = m->whose[weights[i].at];
    }
    free(weights);
    return PLIM_OK;
}

static enum plim_status place_area(struct maker *m, uint32_t lane, bool large, struct plim_err *err)
{
    struct plim_seating *out = m->out;
    struct plim_seating_facts *facts = m->facts;
    uint32_t n = 0;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < out->n; i++) {
        const struct plim_seating_request *r = &out->requests[i];
        if (r->lane == lane && (r->size > PLIM_ENGINE_SMALL) == large && m->length[i] > 0) {
            m->stays[n] = (struct plim_stay){r->size, i, m->length[i], 0};
            m->whose[n++] = i;
            bytes = plim_add_sat(bytes, r->size);
        }
    }
    if (n == 0) {
        return PLIM_OK;
    }
    if (bytes > MOST_BYTES) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "the program asks for 2^62 bytes and more");
    }
    struct plim_seating_area area = {lane, large, m->stream[lane], 0, {0}};
    PLIM_TRY(keep_heavy(m, &n, err));
    PLIM_TRY(plim_places_find(m->stays, n, out->repeat, out->n - out->repeat, &area.places, err));
    if (area.places.height > PLIM_SEATING_BYTES) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "the program has %llu bytes at once",
                          (unsigned long long)area.places.bound);
    }
    for (uint32_t i = 0; i < n; i++) {
        out->requests[m->whose[i]].place = m->stays[i].place;
    }
    area.placed = n;
    facts->placed += n;
    facts->places.height += area.places.height;
    facts->places.bound += area.places.bound;
    facts->areas[facts->n_areas++] = area;
    return PLIM_OK;
}

static enum plim_status make(struct maker *m, struct plim_err *err)
{
    PLIM_TRY(collect(m, err));
    PLIM_TRY(find_period(m, err));
    PLIM_TRY(choose_requests(m, err));
    PLIM_TRY(list_requests(m, err));
    for (uint32_t lane = 0; lane < m->out->lanes; lane++) {
        PLIM_TRY(place_area(m, lane, false, err));
        PLIM_TRY(place_area(m, lane, true, err));
    }
    return plim_seating_index(m->out) ? PLIM_OK
                                      : plim__fail(err, PLIM_E_NOMEM, "no memory for a seating");
}

enum plim_status plim_seating_make(const struct plim_requests *requests, struct plim_seating *out,
                                   struct plim_seating_facts *facts, struct plim_err *err)
{
    struct plim_seating seating = {0};
    struct plim_seating_facts found = {0};
    struct maker m = {.q = requests, .out = &seating, .facts = &found};
    enum plim_status st = make(&m, err);
    plim_vec_fini(&m.seen);
    free(m.length);
    free(m.stays);
    free(m.whose);
    if (st != PLIM_OK) {
        plim_seating_free(&seating);
        return st;
    }
    *out = seating;
    *facts = found;
    return PLIM_OK;
}
