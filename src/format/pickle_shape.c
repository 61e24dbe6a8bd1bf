/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of trace entries and bodies of frame lists; see pickle_shape.h. */

#include "format/pickle_shape.h"

#include "base/num.h"
#include "format/build_internal.h"
#include "format/pickle_internal.h"

#include <stdlib.h>

#define MAX_BODIES     8192u
#define MAX_BODY_BYTES (1u << 20)
#define MAX_MISSES     64u
#define REST           4096u
#define NO_BODY        UINT32_MAX
#define LIKELY(x)      __builtin_expect(!!(x), 1)

enum hole {
    HOLE_NONE,
    HOLE_ACTION,
    HOLE_ADDR,
    HOLE_SIZE,
    HOLE_TIME,
    HOLE_STREAM,
    HOLE_FRAMES
};

/* What the holes of one entry hold, gathered before anything is changed. */
struct filled {
    uint64_t number[HOLE_FRAMES]; /* by hole; the action is an enum plim_action */
    uint32_t stack;
    uint32_t list_cell; /* cell for a new list, or PLIM_PACKED_NONE */
};

/* -- life ---------------------------------------------------------------------------------------- */

void plim__shapes_forget(struct plim_shapes *s)
{
    s->n = s->last = 0;
    s->bodies.n = s->bytes.n = 0;
    memset(s->bucket, 0xff, sizeof(s->bucket));
}

struct plim_shapes *plim__shapes_new(void)
{
    struct plim_shapes *s = calloc(1, sizeof(*s));
    if (s) {
        plim__shapes_forget(s);
    }
    return s;
}

void plim__shapes_free(struct plim_shapes *s)
{
    if (s) {
        plim_vec_fini(&s->bodies);
        plim_vec_fini(&s->bytes);
        free(s);
    }
}

/* -- reading holes ------------------------------------------------------------------------------- */

/* 8 bytes, little-endian. */
static inline uint64_t load8(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

/* The first n (1 to 8) bytes of 8. */
static inline uint64_t load(const uint8_t *p, unsigned n)
{
    return load8(p) & UINT64_MAX >> (64 - 8 * n);
}

/* An integer of 0 to 2^63-1 in any of its binary forms; false for everything else. */
static inline bool read_int(const uint8_t **p, uint64_t *v)
{
    static const uint8_t width[256] = {
        [PLIM_OP_BININT1] = 1, [PLIM_OP_BININT2] = 2, [PLIM_OP_BININT] = 4};
    const uint8_t *q = *p;
    unsigned n = width[q[0]];
    if (n > 0) {
        *v = load(q + 1, n);
        *p = q + 1 + n;
        return *v <= INT32_MAX;
    }
    n = q[1];
    if (q[0] != PLIM_OP_LONG1 || n - 1u > 7u) {
        return false;
    }
    *v = load(q + 2, n);
    *p = q + 2 + n;
    return !(*v >> (8 * n - 1)); /* the sign bit of n bytes */
}

/* A BINGET or LONG_BINGET; false when it is none or leads nowhere. */
static inline bool read_get(const struct plim_pickle *vm, const uint8_t **p, uint32_t *packed)
{
    const uint8_t *q = *p;
    uint64_t key;
    if (q[0] == PLIM_OP_LONG_BINGET) {
        key = load(q + 1, 4);
        *p = q + 5;
    } else if (q[0] == PLIM_OP_BINGET) {
        key = q[1];
        *p = q + 2;
    } else {
        return false;
    }
    *packed = key < vm->memo.n ? vm->memo.items[key] : PLIM_PACKED_NONE;
    return *packed < PLIM_PACKED_WIDE << PLIM_PACKED_BITS;
}

static inline bool read_action(const struct plim_pickle *vm, const uint8_t **p, uint64_t *action)
{
    uint32_t packed;
    if (!read_get(vm, p, &packed) || packed >> PLIM_PACKED_BITS != PLIM_V_STR) {
        return false;
    }
    *action = (packed & PLIM_PACKED_MAX) - (uint64_t)PLIM_WORD_COUNT;
    return *action < PLIM_ACTION_COUNT;
}

/* -- bodies -------------------------------------------------------------------------------------- */

/* Bucket of the body at p: by its first 16 bytes. A shorter one takes bytes of what follows along, which
 * are the fixed start of the next entry; should they differ, it is merely remembered twice. */
static inline size_t body_bucket(const uint8_t *p)
{
    uint64_t hash = (load8(p) * UINT64_C(0x9e3779b97f4a7c15)) ^ load8(p + 8);
    return (size_t)(hash * UINT64_C(0xc4ceb9fe1a85ec53) >> 40) % PLIM_BODY_BUCKETS;
}

/* The last 8 bytes of a body of n: tells most bodies with the same start apart. */
static inline uint64_t body_tail(const uint8_t *p, size_t n)
{
    return n >= 8 ? load8(p + n - 8) : load(p, (unsigned)n);
}

/* The body at p [n ahead], if it is known; moved to the front of its bucket. */
static inline const struct plim_body *find_body(struct plim_shapes *s, size_t bucket,
                                                const uint8_t *p, size_t n)
{
    uint32_t *link = &s->bucket[bucket];
    for (uint32_t i = *link; i != NO_BODY; link = &s->bodies.items[i].next, i = *link) {
        struct plim_body *body = &s->bodies.items[i];
        if (body->n <= n && body_tail(p, body->n) == body->tail &&
            memcmp(s->bytes.items + body->first, p, body->n) == 0) {
            if (link != &s->bucket[bucket]) {
                *link = body->next;
                body->next = s->bucket[bucket];
                s->bucket[bucket] = i;
            }
            return body;
        }
    }
    return NULL;
}

/* Walk a body at p: MARK, GETs of frames, APPENDS; or one GET and APPEND. 0 when it is anything else. */
static size_t walk_body(struct plim_pickle *vm, const uint8_t *p, size_t n)
{
    bool many = *p == PLIM_OP_MARK;
    const uint8_t *q = p + many;
    uint8_t last = many ? PLIM_OP_APPENDS : PLIM_OP_APPEND;
    struct plim_build *b = vm->b;
    b->ids.n = 0;
    while (q + 16 < p + n && *q != last) {
        uint32_t packed;
        if (!read_get(vm, &q, &packed) || packed >> PLIM_PACKED_BITS != PLIM_V_CELL) {
            return 0;
        }
        uint32_t *cell = &b->cells.items[packed & PLIM_PACKED_MAX];
        if (plim__cell_kind(*cell) != PLIM_CELL_FRAME ||
            plim_vec_push(&b->ids, NULL, plim__cell_index(*cell)) != PLIM_OK) {
            return 0;
        }
        *cell |= PLIM_CELL_USED;
    }
    return *q == last && b->ids.n > 0 && (many || b->ids.n == 1) ? (size_t)(q + 1 - p) : 0;
}

/* Remember a new body. Failing to is no failure. */
static const struct plim_body *add_body(struct plim_pickle *vm, size_t bucket, const uint8_t *p,
                                        size_t n)
{
    struct plim_shapes *s = vm->shapes;
    struct plim_body body = {.first = (uint32_t)s->bytes.n, .next = s->bucket[bucket]};
    body.n = (uint32_t)walk_body(vm, p, n);
    body.tail = body.n > 0 ? body_tail(p, body.n) : 0;
    if (body.n == 0 || s->bodies.n >= MAX_BODIES || s->bytes.n + body.n > MAX_BODY_BYTES ||
        plim_stacks_stack(&vm->b->snap.stacks, vm->b->ids.items, vm->b->ids.n, &body.stack, NULL) !=
            PLIM_OK ||
        plim_vec_reserve(&s->bytes, body.n, NULL) != PLIM_OK ||
        plim_vec_push(&s->bodies, NULL, body) != PLIM_OK) {
        return NULL;
    }
    memcpy(s->bytes.items + s->bytes.n, p, body.n);
    s->bytes.n += body.n;
    s->bucket[bucket] = (uint32_t)(s->bodies.n - 1);
    return &s->bodies.items[s->bodies.n - 1];
}

/* A list of frames: from the memo, or new. */
static inline bool read_frames(struct plim_pickle *vm, const uint8_t **p, size_t n,
                               struct filled *f)
{
    const uint8_t *q = *p;
    if (q[0] != PLIM_OP_EMPTY_LIST) {
        uint32_t packed;
        if (!read_get(vm, p, &packed) || packed >> PLIM_PACKED_BITS != PLIM_V_CELL) {
            return false;
        }
        uint32_t *cell = &vm->b->cells.items[packed & PLIM_PACKED_MAX];
        f->list_cell = PLIM_PACKED_NONE;
        f->stack = plim__cell_index(*cell);
        if (plim__cell_kind(*cell) != PLIM_CELL_STACK || f->stack == PLIM_CELL_INDEX_MAX) {
            return false;
        }
        *cell |= PLIM_CELL_USED;
        return true;
    }
    if (q[1] != PLIM_OP_MEMOIZE) {
        return false;
    }
    q += 2;
    n -= 2;
    if (q[0] == PLIM_OP_SETITEMS) { /* nothing follows: an empty list */
        f->stack = PLIM_STACK_EMPTY;
        f->list_cell = plim__cell(PLIM_CELL_LIST, 0) | PLIM_CELL_USED;
        *p = q;
        return true;
    }
    size_t bucket = body_bucket(q);
    const struct plim_body *body = find_body(vm->shapes, bucket, q, n);
    body = body ? body : add_body(vm, bucket, q, n);
    if (!body) {
        return false;
    }
    f->stack = body->stack;
    f->list_cell = plim__cell(PLIM_CELL_STACK, body->stack) | PLIM_CELL_USED;
    *p = q + body->n;
    return true;
}

/* -- fitting ------------------------------------------------------------------------------------- */

/* The fixed bytes beyond the first 8. */
static bool rest_differs(const struct plim_shape_step *step, const uint8_t *p)
{
    uint64_t difference = 0;
    for (unsigned i = 1; i < step->words; i++) {
        difference |= (load8(p + 8 * i) ^ step->word[i]) & step->mask[i];
    }
    return difference != 0;
}

/* Bytes that the entry at p takes when it fits the shape, else 0. The last step has no hole. */
static inline size_t fit(struct plim_pickle *vm, const struct plim_shape *shape, const uint8_t *p,
                         size_t n, struct filled *f)
{
    const uint8_t *q = p;
    for (const struct plim_shape_step *step = shape->steps;; step++) {
        if (((load8(q) ^ step->word[0]) & step->mask[0]) != 0 ||
            (step->words > 1 && rest_differs(step, q))) {
            return 0;
        }
        q += step->n;
        switch (step->hole) {
        case HOLE_NONE:
            return (size_t)(q - p);
        case HOLE_FRAMES:
            if (!read_frames(vm, &q, n - (size_t)(q - p), f) ||
                n - (size_t)(q - p) < PLIM_SHAPE_MARGIN / 2) {
                return 0; /* also after a long list: the window may end within the rest */
            }
            break;
        case HOLE_ACTION:
            if (!read_action(vm, &q, &f->number[HOLE_ACTION])) {
                return 0;
            }
            break;
        default:
            if (!read_int(&q, &f->number[step->hole])) {
                return 0;
            }
        }
    }
}

/* Memo entries and cells in the order in which the opcodes would have made them. */
static inline void commit_memo(struct plim_pickle *vm, const struct plim_shape *shape,
                               const struct filled *f)
{
    struct plim_build *b = vm->b;
    uint32_t *memo = vm->memo.items + vm->memo.n;
    size_t n = 0;
    unsigned i = 0;
    memo[n++] = plim__pack(plim__value(PLIM_V_CELL, b->cells.n));
    b->cells.items[b->cells.n++] = plim__cell(PLIM_CELL_EVENT, b->events.n);
    for (; i < shape->memo_before; i++) {
        memo[n++] = shape->memo[i];
    }
    if (f->list_cell != PLIM_PACKED_NONE) {
        memo[n++] = plim__pack(plim__value(PLIM_V_CELL, b->cells.n));
        b->cells.items[b->cells.n++] = f->list_cell;
    }
    for (; i < shape->n_memo; i++) {
        memo[n++] = shape->memo[i];
    }
    vm->memo.n += n;
    vm->memo_n += n;
}

static inline bool commit(struct plim_pickle *vm, const struct plim_shape *shape,
                          const struct filled *f, struct plim_value *out)
{
    struct plim_build *b = vm->b;
    struct plim_event *e = &b->events.items[b->events.n];
    uint16_t stream = shape->entry.stream;
    if (!shape->has_stream) {
        stream = 0;
    } else if ((int64_t)f->number[HOLE_STREAM] == b->last_stream) {
        stream = b->last_stream_index;
    } else {
        bool ok;
        struct plim_value v = plim__value(PLIM_V_INT, f->number[HOLE_STREAM]);
        if (plim__build_stream(b, v, &stream, &ok, NULL) != PLIM_OK) {
            return false;
        }
    }
    *out = plim__value(PLIM_V_CELL, b->cells.n);
    commit_memo(vm, shape, f);
    *e = shape->entry;
    e->addr = f->number[HOLE_ADDR];
    e->size = f->number[HOLE_SIZE];
    e->time_us = f->number[HOLE_TIME];
    e->stream = stream;
    e->stack = f->stack;
    e->action = (uint8_t)f->number[HOLE_ACTION];
    b->by_action[e->action]++;
    b->events.n++;
    return true;
}

/* Room for one entry in every column that it touches. */
static inline bool has_room(struct plim_pickle *vm)
{
    struct plim_build *b = vm->b;
    return b->cells.n + 2 < PLIM_CELL_INDEX_MAX && b->events.n + 1 < PLIM_CELL_INDEX_MAX &&
           vm->memo_n == vm->memo.n && vm->memo_n + 64 < b->limits.memo &&
           plim_vec_reserve(&b->cells, 2, NULL) == PLIM_OK &&
           plim_vec_reserve(&b->events, 1, NULL) == PLIM_OK &&
           plim_vec_reserve(&vm->memo, 64, NULL) == PLIM_OK;
}

/* One entry at p, with the shapes that are worth trying, the last one first. */
static inline size_t one_entry(struct plim_pickle *vm, const uint8_t *p, size_t n,
                               struct plim_value *out)
{
    struct plim_shapes *s = vm->shapes;
    unsigned tries = s->rest > 0 ? 1 : s->n; /* while entries differ too much, only the last one */
    for (unsigned i = 0; i < tries; i++) {
        unsigned k = i == 0 ? s->last : i <= s->last ? i - 1 : i;
        struct filled f;
        f.number[HOLE_TIME] = 0;
        f.stack = PLIM_NO_STACK;
        f.list_cell = PLIM_PACKED_NONE;
        size_t used = fit(vm, &s->shapes[k], p, n, &f);
        if (used > 0 && commit(vm, &s->shapes[k], &f, out)) {
            s->last = k;
            s->shapes[k].used = ++s->clock;
            s->misses = 0;
            s->fits++;
            return used;
        }
    }
    return 0;
}

size_t plim__shape_run(struct plim_pickle *vm, const uint8_t *p, const uint8_t *safe,
                       struct plim_value *sp, size_t room, size_t *made)
{
    const uint8_t *q = p;
    *made = 0;
    if (vm->shapes->n == 0) {
        return 0;
    }
    while (*made < room && safe > q && (size_t)(safe - q) > PLIM_SHAPE_MARGIN && has_room(vm)) {
        const uint8_t *entry = q + (*made > 0); /* behind its EMPTY_DICT */
        if (*made > 0 && *q != PLIM_OP_EMPTY_DICT) {
            break;
        }
        size_t used = one_entry(vm, entry, (size_t)(safe - entry), &sp[*made]);
        if (used == 0) {
            break;
        }
        q = entry + used;
        (*made)++;
    }
    return (size_t)(q - p);
}

/* -- learning ------------------------------------------------------------------------------------ */

static bool add_fixed(struct plim_shape_step *step, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++, step->n++) {
        if (step->n >= 8 * PLIM_SHAPE_WORDS) {
            return false;
        }
        step->words = (uint8_t)(step->n / 8 + 1);
        step->word[step->n / 8] |= (uint64_t)p[i] << 8 * (step->n % 8);
        step->mask[step->n / 8] |= UINT64_C(0xff) << 8 * (step->n % 8);
    }
    return true;
}

static bool add_memo(struct plim_shape *shape, struct plim_value v)
{
    if (shape->n_memo >= PLIM_SHAPE_MEMO || v.u > PLIM_PACKED_MAX) {
        return false;
    }
    shape->memo[shape->n_memo++] = plim__pack(v);
    return true;
}

/* A value that belongs to the fixed bytes: from the memo, a short string, or a pair of small numbers.
 * Moves *p behind it. */
static bool learn_fixed(struct plim_pickle *vm, struct plim_shape *shape, const uint8_t **p)
{
    struct plim_shape_step *step = &shape->steps[shape->n_steps];
    const uint8_t *q = *p;
    struct plim_value v;
    uint32_t packed;
    if (read_get(vm, &q, &packed)) {
        bool ok = add_fixed(step, *p, (size_t)(q - *p));
        *p = q;
        return ok;
    }
    q = *p;
    if (q[0] == PLIM_OP_SHORT_BINUNICODE) {
        struct plim_str s = {(const char *)q + 2, q[1]};
        q += 2 + s.n;
        if (plim__build_str(vm->b, s, &v, NULL) != PLIM_OK) {
            return false;
        }
    } else if (q[0] == PLIM_OP_BININT1 && q[2] == PLIM_OP_BININT1 && q[4] == PLIM_OP_TUPLE2) {
        if (plim__build_pair(vm->b, q[1], q[3], &v, NULL) != PLIM_OK) {
            return false;
        }
        q += 5;
    } else {
        return false;
    }
    if (*q++ != PLIM_OP_MEMOIZE || !add_memo(shape, v)) {
        return false;
    }
    bool ok = add_fixed(step, *p, (size_t)(q - *p));
    *p = q;
    return ok;
}

static enum hole hole_of(uint64_t key)
{
    switch (key) {
    case PLIM_K_ACTION:
        return HOLE_ACTION;
    case PLIM_K_ADDR:
    case PLIM_K_DEVICE_FREE:
        return HOLE_ADDR;
    case PLIM_K_SIZE:
        return HOLE_SIZE;
    case PLIM_K_TIME_US:
        return HOLE_TIME;
    case PLIM_K_STREAM:
        return HOLE_STREAM;
    case PLIM_K_FRAMES:
        return HOLE_FRAMES;
    default:
        return HOLE_NONE;
    }
}

/* Move behind the value of a hole. */
static bool skip_hole(struct plim_pickle *vm, enum hole hole, const uint8_t **p, size_t n)
{
    struct filled f;
    uint64_t number;
    if (hole == HOLE_FRAMES) {
        return read_frames(vm, p, n, &f);
    }
    return hole == HOLE_ACTION ? read_action(vm, p, &number) : read_int(p, &number);
}

/* One key and its value into the shape. */
static bool learn_pair(struct plim_pickle *vm, struct plim_shape *shape, const uint8_t **p,
                       const uint8_t *end, unsigned *holes)
{
    struct plim_shape_step *step = &shape->steps[shape->n_steps];
    const uint8_t *q = *p;
    uint32_t packed;
    if (!read_get(vm, &q, &packed) || packed >> PLIM_PACKED_BITS != PLIM_V_STR ||
        (packed & PLIM_PACKED_MAX) >= PLIM_KEY_COUNT || !add_fixed(step, *p, (size_t)(q - *p))) {
        return false;
    }
    enum hole hole = hole_of(packed & PLIM_PACKED_MAX);
    *p = q;
    if (hole == HOLE_NONE) {
        return learn_fixed(vm, shape, p) && *p < end;
    }
    if ((*holes & 1u << hole) || !skip_hole(vm, hole, p, (size_t)(end - *p) + 16) || *p >= end ||
        shape->n_steps + 2 >= PLIM_SHAPE_STEPS) {
        return false;
    }
    *holes |= 1u << hole;
    shape->memo_before = hole == HOLE_FRAMES ? shape->n_memo : shape->memo_before;
    step->hole = (uint8_t)hole;
    shape->n_steps++;
    return true;
}

/* Where a new shape goes: a free place, or that of the one unused for longest. */
static struct plim_shape *shape_place(struct plim_shapes *s)
{
    unsigned place = 0;
    if (s->n < PLIM_SHAPES) {
        return &s->shapes[s->n++];
    }
    for (unsigned i = 1; i < s->n; i++) {
        place = s->shapes[i].used < s->shapes[place].used ? i : place;
    }
    return &s->shapes[place];
}

void plim__shape_learn(struct plim_pickle *vm, const uint8_t *p, size_t n)
{
    struct plim_shapes *s = vm->shapes;
    struct plim_shape shape = {.entry = vm->b->events.items[vm->b->events.n - 1]};
    const uint8_t *end = p + n;
    unsigned holes = 0, needed = 1u << HOLE_ACTION | 1u << HOLE_ADDR | 1u << HOLE_SIZE;
    if (s->rest > 0) {
        s->rest--;
        return;
    }
    if (++s->misses > MAX_MISSES) { /* every entry differs: do not try for a while */
        s->misses = 0;
        s->rest = REST;
    }
    if (n < 4 || shape.entry.pad[0] != 0 || !add_fixed(&shape.steps[0], p, 2)) {
        return;
    }
    p += 2; /* MEMOIZE, MARK */
    while (*p != PLIM_OP_SETITEMS) {
        if (!learn_pair(vm, &shape, &p, end, &holes)) {
            return;
        }
    }
    if (p + 1 != end || (holes & needed) != needed ||
        !add_fixed(&shape.steps[shape.n_steps], p, 1)) {
        return;
    }
    shape.n_steps++;
    shape.has_stream = holes & 1u << HOLE_STREAM;
    shape.used = ++s->clock;
    if (!(holes & 1u << HOLE_FRAMES)) {
        shape.entry.stack = PLIM_NO_STACK;
    }
    *shape_place(s) = shape;
}
