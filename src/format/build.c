/* SPDX-License-Identifier: Apache-2.0 */
/* Cells, boxes and runs: what a container is until, and after, it is recognised. See build.h. */

#include "format/build_internal.h"

#include "base/num.h"

/* Pool ids that may differ: few in truth, and a bound on what keys made to collide can cost. */
#define MAX_PAIRS 65534u

/* -- life ---------------------------------------------------------------------------------------- */

static const char *const words[] = {
#define PLIM__X(name, text) text,
    PLIM_KEY_MAP(PLIM__X) PLIM_VALUE_WORD_MAP(PLIM__X)
#undef PLIM__X
};

static enum plim_status intern_words(struct plim_build *b, struct plim_err *err)
{
    uint32_t id;
    for (size_t i = 0; i < PLIM_COUNT_OF(words); i++) {
        PLIM_TRY(plim_intern_put(&b->snap.strings, plim_str_from(words[i]), &id, err));
    }
    for (unsigned a = 0; a < PLIM_ACTION_COUNT; a++) {
        struct plim_str text = plim_str_from(plim_action_text((enum plim_action)a));
        PLIM_TRY(plim_intern_put(&b->snap.strings, text, &id, err));
    }
    return PLIM_OK;
}

bool plim__build_worth_room(const struct plim_build *b)
{
    return b->expected >= 16 * PLIM_MIB && b->expected <= b->limits.memory / 2;
}

/* An entry takes 60 to 200 bytes of a file and mostly one or two cells. What is not used is never
 * touched and given back at the end; without the room, the columns grow as they fill. */
static void set_room_aside(struct plim_build *b)
{
    if (plim__build_worth_room(b)) {
        (void)plim_vec_reserve(&b->events, b->expected / 100, NULL);
        (void)plim_vec_reserve(&b->cells, b->expected / 64, NULL);
    }
}

enum plim_status plim__build_init(struct plim_build *b, const struct plim_read_limits *limits,
                                  uint64_t expected, struct plim_err *err)
{
    *b = (struct plim_build){.limits = *limits, .expected = expected, .last_pool_pair = UINT32_MAX};
    PLIM_TRY(plim_snapshot_init(&b->snap, err));
    set_room_aside(b);
    enum plim_status st = intern_words(b, err);
    if (st != PLIM_OK) {
        plim__build_fini(b);
    }
    return st;
}

void plim__build_fini(struct plim_build *b)
{
    plim_vec_foreach (box, &b->boxes) {
        free(box->items);
    }
    plim_vec_fini(&b->cells);
    plim_vec_fini(&b->boxes);
    plim_vec_fini(&b->free_boxes);
    plim_vec_fini(&b->runs);
    plim_vec_fini(&b->events);
    plim_vec_fini(&b->segments);
    plim_vec_fini(&b->blocks);
    plim_vec_fini(&b->pasts);
    plim_vec_fini(&b->annotations);
    plim_vec_fini(&b->event_findings);
    plim_vec_fini(&b->ids);
    plim_vec_fini(&b->pairs);
    plim_map_fini(&b->pair_index);
    plim_map_fini(&b->stream_index);
    plim_map_fini(&b->pool_index);
    plim_map_fini(&b->join_index);
    plim_map_fini(&b->note_index);
    plim_snapshot_fini(&b->snap);
}

#define VEC_BYTES(v) ((uint64_t)(v).cap * sizeof(*(v).items))
#define MAP_BYTES(m) ((m).slots ? ((uint64_t)(m).mask + 1) * sizeof(struct plim_map_slot) : 0)

uint64_t plim__build_memory(const struct plim_build *b)
{
    const struct plim_snapshot *s = &b->snap;
    uint64_t strings = s->strings.arena.used + VEC_BYTES(s->strings.strs) +
                       VEC_BYTES(s->strings.hashes) + (uint64_t)s->strings.mask * 4;
    uint64_t stacks = VEC_BYTES(s->stacks.frames) + VEC_BYTES(s->stacks.frame_ids) +
                      VEC_BYTES(s->stacks.stacks) + MAP_BYTES(s->stacks.frame_index) +
                      MAP_BYTES(s->stacks.stack_index);
    uint64_t columns = VEC_BYTES(b->events) + VEC_BYTES(b->segments) + VEC_BYTES(b->blocks) +
                       VEC_BYTES(b->pasts) + VEC_BYTES(b->annotations) + VEC_BYTES(s->notes) +
                       VEC_BYTES(b->event_findings);
    uint64_t containers = VEC_BYTES(b->cells) + VEC_BYTES(b->boxes) + VEC_BYTES(b->free_boxes) +
                          b->box_bytes + VEC_BYTES(b->runs) + VEC_BYTES(b->ids);
    uint64_t tables = VEC_BYTES(b->pairs) + MAP_BYTES(b->pair_index) + MAP_BYTES(b->stream_index) +
                      MAP_BYTES(b->pool_index) + MAP_BYTES(b->join_index) +
                      MAP_BYTES(b->note_index);
    return strings + stacks + columns + containers + tables;
}

enum plim_status plim__build_budget(const struct plim_build *b, uint64_t extra, uint64_t consumed,
                                    struct plim_err *err)
{
    uint64_t input = plim_max_u64(consumed, b->expected);
    uint64_t fair = plim_add_sat(64 * PLIM_MIB, input > UINT64_MAX / 4 ? UINT64_MAX : 4 * input);
    uint64_t used = plim__build_memory(b) + extra;
    if (used <= plim_min_u64(b->limits.memory, fair)) {
        return PLIM_OK;
    }
    plim__fail(err, PLIM_E_BUDGET, "reading it needs more than %llu MiB of memory",
               (unsigned long long)(plim_min_u64(b->limits.memory, fair) / PLIM_MIB));
    if (used > b->limits.memory) {
        plim__err_hint(err, "raise the limit (--memory-budget) if you trust the file");
    } else {
        plim__err_hint(err, "a file of this size does not need so much: it may be made to harm");
    }
    return PLIM_E_BUDGET;
}

/* -- values -------------------------------------------------------------------------------------- */

enum plim_status plim__build_many_cells(struct plim_err *err)
{
    return plim__fail(err, PLIM_E_BUDGET, "more than 2^27 lists and dicts");
}

enum plim_status plim__build_str(struct plim_build *b, struct plim_str s, struct plim_value *out,
                                 struct plim_err *err)
{
    uint32_t id;
    PLIM_TRY(plim_intern_put(&b->snap.strings, s, &id, err));
    *out = plim__value(PLIM_V_STR, id);
    return PLIM_OK;
}

enum plim_status plim__build_pair(struct plim_build *b, uint64_t first, uint64_t second,
                                  struct plim_value *out, struct plim_err *err)
{
    const struct plim_pool_id *pairs = b->pairs.items;
    if (b->pairs.n > 0 && pairs[b->last_pair].a == first && pairs[b->last_pair].b == second) {
        *out = plim__value(PLIM_V_PAIR, b->last_pair);
        return PLIM_OK;
    }
    uint64_t key = plim_hash_u64(first ^ plim_hash_u64(second + 1)) & ~UINT64_C(1);
    uint64_t *found = plim_map_get(&b->pair_index, key);
    if (found && pairs[*found].a == first && pairs[*found].b == second) {
        b->last_pair = (uint32_t)*found;
    } else {
        struct plim_pool_id added = {first, second};
        if (b->pairs.n >= MAX_PAIRS) {
            return plim__fail(err, PLIM_E_BUDGET, "more than %u different pairs of integers",
                              MAX_PAIRS);
        }
        PLIM_TRY(plim_map_put(&b->pair_index, key, b->pairs.n, err));
        PLIM_TRY(plim_vec_push(&b->pairs, err, added));
        b->last_pair = (uint32_t)(b->pairs.n - 1);
    }
    *out = plim__value(PLIM_V_PAIR, b->last_pair);
    return PLIM_OK;
}

enum plim_status plim__build_tuple(struct plim_build *b, const struct plim_value *items, size_t n,
                                   struct plim_value *out, struct plim_err *err)
{
    if (n == 2 && items[0].kind == PLIM_V_INT && items[1].kind == PLIM_V_INT &&
        b->pairs.n < MAX_PAIRS) {
        return plim__build_pair(b, items[0].u, items[1].u, out, err);
    }
    struct plim_value list;
    PLIM_TRY(plim__build_new(b, PLIM_CELL_LIST, &list, err));
    *out = list;
    /* Items are copied: append() may settle a boxed dict, but never changes the values. */
    return plim__build_append(b, list, (struct plim_value *)(uintptr_t)items, n, err);
}

/* -- boxes --------------------------------------------------------------------------------------- */

enum plim_status plim__build_box_new(struct plim_build *b, uint32_t *cell, enum plim_cell_kind kind,
                                     struct plim_err *err)
{
    size_t index;
    if (b->free_boxes.n > 0) {
        index = b->free_boxes.items[--b->free_boxes.n];
    } else {
        index = b->boxes.n;
        PLIM_TRY(plim_vec_push(&b->boxes, err, (struct plim_box){0}));
    }
    *cell = plim__cell(kind, index);
    return PLIM_OK;
}

enum plim_status plim__build_drop_box(struct plim_build *b, uint32_t cell, struct plim_err *err)
{
    struct plim_box *box = plim__box_of(b, cell);
    PLIM_TRY(plim_vec_push(&b->free_boxes, err, plim__cell_index(cell)));
    if (box->cap > 64) { /* a rare long one is not worth keeping */
        free(box->items);
        b->box_bytes -= box->cap * sizeof(*box->items);
        *box = (struct plim_box){0};
    }
    box->n = 0;
    box->no_stack = false;
    return PLIM_OK;
}

enum plim_status plim__build_box_push(struct plim_build *b, uint32_t cell,
                                      const struct plim_value *values, size_t n,
                                      struct plim_err *err)
{
    struct plim_box *box = plim__box_of(b, cell);
    uint64_t want = (uint64_t)box->n + n;
    if (want > UINT32_MAX) {
        return plim__build_many_cells(err);
    }
    if (want > box->cap) {
        uint64_t cap = plim_max_u64(plim_max_u64(want, (uint64_t)box->cap * 2), 4);
        cap = plim_min_u64(cap, UINT32_MAX);
        struct plim_value *moved = realloc(box->items, (size_t)cap * sizeof(*moved));
        if (!moved) {
            return plim__fail(err, PLIM_E_NOMEM, "no memory for a list of %llu items",
                              (unsigned long long)cap);
        }
        b->box_bytes += (cap - box->cap) * sizeof(*moved);
        box->items = moved;
        box->cap = (uint32_t)cap;
    }
    if (n > 0) {
        memcpy(box->items + box->n, values, n * sizeof(*values));
    }
    box->n = (uint32_t)want;
    box->no_stack = false;
    return PLIM_OK;
}

/* -- dicts --------------------------------------------------------------------------------------- */

/* What a dict with these keys is; DICT when nothing known. */
static enum plim_cell_kind kind_of_keys(uint64_t keys)
{
    static const struct {
        uint64_t key;
        enum plim_cell_kind kind;
    } marks[] = {
        {PLIM_KEY_BIT(ACTION), PLIM_CELL_EVENT},
        {PLIM_KEY_BIT(STAGE), PLIM_CELL_ANNOTATION},
        {PLIM_KEY_BIT(TOTAL_SIZE), PLIM_CELL_SEGMENT},
        {PLIM_KEY_BIT(REAL_SIZE), PLIM_CELL_PAST},
        {PLIM_KEY_BIT(STATE), PLIM_CELL_BLOCK},
        {PLIM_KEY_BIT(FILENAME) | PLIM_KEY_BIT(LINE), PLIM_CELL_FRAME},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(marks); i++) {
        if (keys & marks[i].key) {
            return marks[i].kind;
        }
    }
    return PLIM_CELL_DICT;
}

static uint64_t keys_of(const struct plim_value *pairs, size_t n)
{
    uint64_t keys = 0;
    for (size_t i = 0; i < 2 * n; i += 2) {
        if (pairs[i].kind == PLIM_V_STR && pairs[i].u < PLIM_KEY_COUNT) {
            keys |= UINT64_C(1) << pairs[i].u;
        }
    }
    return keys;
}

/* Write the pairs into the column of `kind`; *index as in build_internal.h. */
static enum plim_status set_typed(struct plim_build *b, enum plim_cell_kind kind,
                                  const struct plim_value *pairs, size_t n, size_t *index,
                                  struct plim_err *err)
{
    switch (kind) {
    case PLIM_CELL_EVENT:
        return plim__build_event(b, pairs, n, index, err);
    case PLIM_CELL_FRAME:
        return plim__build_frame(b, pairs, n, index, err);
    case PLIM_CELL_SEGMENT:
        return plim__build_segment(b, pairs, n, index, err);
    case PLIM_CELL_BLOCK:
        return plim__build_block(b, pairs, n, index, err);
    case PLIM_CELL_PAST:
        return plim__build_past(b, pairs, n, index, err);
    case PLIM_CELL_ANNOTATION:
        return plim__build_annotation(b, pairs, n, index, err);
    default:
        return plim__fail(err, PLIM_E_DATA, "pairs are set on a value that is no dict");
    }
}

/* Make a dict what its keys say. *done is false when they say nothing. */
static enum plim_status recognise(struct plim_build *b, struct plim_value dict,
                                  const struct plim_value *pairs, size_t n, bool *done,
                                  struct plim_err *err)
{
    size_t index = PLIM_NEW;
    uint64_t keys = keys_of(pairs, n);
    enum plim_cell_kind kind = kind_of_keys(keys);
    b->seen |= keys;
    *done = kind != PLIM_CELL_DICT;
    if (!*done) {
        return PLIM_OK;
    }
    PLIM_TRY(set_typed(b, kind, pairs, n, &index, err));
    if (index > PLIM_CELL_INDEX_MAX) {
        return plim__build_many_cells(err);
    }
    b->cells.items[dict.u] = plim__cell(kind, index);
    return PLIM_OK;
}

enum plim_status plim__build_settle(struct plim_build *b, struct plim_value v, struct plim_err *err)
{
    if (v.kind != PLIM_V_CELL || plim__cell_kind(plim__cell_of(b, v)) != PLIM_CELL_BOX_DICT) {
        return PLIM_OK;
    }
    bool done;
    uint32_t cell = plim__cell_of(b, v);
    struct plim_box *box = plim__box_of(b, cell);
    PLIM_TRY(recognise(b, v, box->items, box->n / 2, &done, err));
    return done ? plim__build_drop_box(b, cell, err) : PLIM_OK;
}

enum plim_status plim__build_settle_all(struct plim_build *b, struct plim_value container,
                                        const struct plim_value *values, size_t n, size_t step,
                                        struct plim_err *err)
{
    for (size_t i = 0; i < n; i += step) {
        if (values[i].kind != PLIM_V_CELL) {
            continue;
        }
        if (values[i].u == container.u) {
            return plim__fail(err, PLIM_E_DATA, "a list or dict contains itself");
        }
        if (plim__cell_kind(plim__cell_of(b, values[i])) == PLIM_CELL_BOX_DICT) {
            PLIM_TRY(plim__build_settle(b, values[i], err));
        }
    }
    return PLIM_OK;
}

enum plim_status plim__build_set(struct plim_build *b, struct plim_value dict,
                                 struct plim_value *pairs, size_t n, struct plim_err *err)
{
    if (dict.kind != PLIM_V_CELL) {
        return plim__fail(err, PLIM_E_DATA, "pairs are set on a value that is no dict");
    }
    if (n > 0) {
        PLIM_TRY(plim__build_settle_all(b, dict, pairs + 1, 2 * n - 1, 2, err));
    }
    uint32_t cell = plim__cell_of(b, dict);
    enum plim_cell_kind kind = plim__cell_kind(cell);
    if (kind == PLIM_CELL_DICT) {
        bool done = false;
        if (n > 1) { /* a dict that comes pair by pair is recognised when it is used */
            PLIM_TRY(recognise(b, dict, pairs, n, &done, err));
        }
        if (done || n == 0) {
            return PLIM_OK;
        }
        PLIM_TRY(plim__build_box_new(b, &b->cells.items[dict.u], PLIM_CELL_BOX_DICT, err));
        return plim__build_box_push(b, b->cells.items[dict.u], pairs, 2 * n, err);
    }
    if (kind == PLIM_CELL_BOX_DICT) {
        return plim__build_box_push(b, cell, pairs, 2 * n, err);
    }
    if (cell & PLIM_CELL_USED) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "a dict changes after it was used");
    }
    size_t index = plim__cell_index(cell);
    b->seen |= keys_of(pairs, n);
    PLIM_TRY(set_typed(b, kind, pairs, n, &index, err));
    b->cells.items[dict.u] = plim__cell(kind, index);
    return PLIM_OK;
}

struct plim_value plim__build_get(struct plim_build *b, struct plim_value dict, enum plim_word key)
{
    if (dict.kind == PLIM_V_CELL && plim__cell_kind(plim__cell_of(b, dict)) == PLIM_CELL_BOX_DICT) {
        const struct plim_box *box = plim__box_of(b, plim__cell_of(b, dict));
        for (size_t i = box->n; i >= 2; i -= 2) {
            if (box->items[i - 2].kind == PLIM_V_STR && box->items[i - 2].u == (uint64_t)key) {
                return box->items[i - 1];
            }
        }
    }
    return plim__value(PLIM_V_NONE, 0);
}

enum plim_status plim__build_unknown(struct plim_build *b, struct plim_value key,
                                     struct plim_err *err)
{
    uint32_t id = key.kind == PLIM_V_STR ? (uint32_t)key.u : PLIM_NO_ID;
    plim_vec_foreach (known, &b->snap.unknown_keys) {
        if (known->key == id) {
            known->times++;
            return PLIM_OK;
        }
    }
    struct plim_unknown_key added = {id, 1};
    return b->snap.unknown_keys.n < 64 ? plim_vec_push(&b->snap.unknown_keys, err, added) : PLIM_OK;
}
