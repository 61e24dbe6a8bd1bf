/* SPDX-License-Identifier: Apache-2.0 */
/* Frames, stacks, segments, blocks and a block's history: from the pairs of a dict to a column. */

#include "format/build_internal.h"

#include "base/num.h"

/* -- frames and stacks --------------------------------------------------------------------------- */

enum plim_status plim__build_frame(struct plim_build *b, const struct plim_value *pairs, size_t n,
                                   size_t *index, struct plim_err *err)
{
    struct plim_frame frame = {PLIM_NO_ID, PLIM_NO_ID, 0};
    if (*index != PLIM_NEW) {
        frame = b->snap.stacks.frames.items[*index];
    }
    for (size_t i = 0; i < 2 * n; i += 2) {
        struct plim_value v = pairs[i + 1];
        uint64_t line = 0;
        uint32_t text = v.kind == PLIM_V_STR ? (uint32_t)v.u : PLIM_NO_ID;
        switch (pairs[i].kind == PLIM_V_STR ? pairs[i].u : PLIM_KEY_COUNT) {
        case PLIM_K_NAME:
            frame.name = text;
            break;
        case PLIM_K_FILENAME:
            frame.file = text;
            break;
        case PLIM_K_LINE:
            frame.line = plim__value_u64(v, &line) && line <= UINT32_MAX ? (uint32_t)line : 0;
            break;
        case PLIM_K_FX_NODE_OP:
        case PLIM_K_FX_NODE_NAME:
        case PLIM_K_FX_NODE_TARGET:
        case PLIM_K_FX_NODE_INFO:
        case PLIM_K_FX_ORIGINAL_TRACE:
            break; /* where compiled code came from: not used */
        default:
            PLIM_TRY(plim__build_unknown(b, pairs[i], err));
        }
    }
    uint32_t id;
    PLIM_TRY(plim_stacks_frame(&b->snap.stacks, frame, &id, err));
    *index = id;
    return PLIM_OK;
}

/* The frame ids of a boxed list into b->ids; false in *all when an item is no frame. */
static enum plim_status frames_of_box(struct plim_build *b, struct plim_box *box, bool *all,
                                      struct plim_err *err)
{
    b->ids.n = 0;
    *all = false;
    PLIM_TRY(plim_vec_reserve(&b->ids, box->n, err));
    for (uint32_t i = 0; i < box->n; i++) {
        uint32_t item;
        if (box->items[i].kind != PLIM_V_CELL) {
            return PLIM_OK;
        }
        item = plim__cell_of(b, box->items[i]);
        if (plim__cell_kind(item) != PLIM_CELL_FRAME) {
            return PLIM_OK;
        }
        b->ids.items[b->ids.n++] = plim__cell_index(item);
    }
    *all = true;
    return PLIM_OK;
}

/* A boxed list turns into a stack, once; one that cannot is not tried again. */
static enum plim_status stack_of_box(struct plim_build *b, struct plim_value v, uint32_t cell,
                                     uint32_t *id, struct plim_err *err)
{
    bool all;
    struct plim_box *box = plim__box_of(b, cell);
    if (box->no_stack) {
        return PLIM_OK;
    }
    PLIM_TRY(frames_of_box(b, box, &all, err));
    box->no_stack = !all;
    if (all) {
        PLIM_TRY(plim_stacks_stack(&b->snap.stacks, b->ids.items, b->ids.n, id, err));
        PLIM_TRY(plim__build_drop_box(b, cell, err));
        b->cells.items[v.u] = plim__cell(PLIM_CELL_STACK, *id);
    }
    return PLIM_OK;
}

enum plim_status plim__build_stack(struct plim_build *b, struct plim_value v, uint32_t *id,
                                   struct plim_err *err)
{
    *id = PLIM_NO_STACK;
    if (v.kind != PLIM_V_CELL) {
        return PLIM_OK;
    }
    uint32_t cell = plim__cell_of(b, v);
    if (plim__cell_kind(cell) == PLIM_CELL_LIST) {
        *id = PLIM_STACK_EMPTY;
    } else if (plim__cell_kind(cell) == PLIM_CELL_STACK) {
        *id = plim__cell_index(cell);
    } else if (plim__cell_kind(cell) == PLIM_CELL_BOX_LIST) {
        PLIM_TRY(stack_of_box(b, v, cell, id, err));
    }
    b->cells.items[v.u] |= PLIM_CELL_USED;
    return PLIM_OK;
}

/* Beyond this many frames the two are not joined, so that many joins stay affordable. */
#define MAX_JOINED 1024

enum plim_status plim__build_join(struct plim_build *b, uint32_t cpp, uint32_t python, uint32_t *id,
                                  struct plim_err *err)
{
    size_t n_cpp, n_python;
    const uint32_t *c = plim_stacks_frames(&b->snap.stacks, cpp, &n_cpp);
    const uint32_t *p = plim_stacks_frames(&b->snap.stacks, python, &n_python);
    if (n_cpp == 0 || n_python == 0 || n_cpp + n_python > MAX_JOINED) {
        *id = n_python == 0 && cpp != PLIM_NO_STACK ? cpp : python;
        return PLIM_OK;
    }
    uint64_t key = (uint64_t)cpp << 32 | python;
    uint64_t *known = plim_map_get(&b->join_index, key);
    if (known) {
        *id = (uint32_t)*known;
        return PLIM_OK;
    }
    uint32_t both[MAX_JOINED];
    memcpy(both, c, n_cpp * sizeof(*c));
    memcpy(both + n_cpp, p, n_python * sizeof(*p));
    PLIM_TRY(plim_stacks_stack(&b->snap.stacks, both, n_cpp + n_python, id, err));
    return plim_map_put(&b->join_index, key, *id, err);
}

/* -- streams and pools --------------------------------------------------------------------------- */

enum plim_status plim__build_stream(struct plim_build *b, struct plim_value v, uint16_t *index,
                                    bool *ok, struct plim_err *err)
{
    *ok = v.kind == PLIM_V_INT || v.kind == PLIM_V_UINT || v.kind == PLIM_V_BOOL;
    if (!*ok) {
        return PLIM_OK;
    }
    uint64_t *found = plim_map_get(&b->stream_index, v.u);
    if (found) {
        *index = (uint16_t)*found;
    } else if (v.u == PLIM_MAP_NO_KEY) { /* stream -1, the one handle that the map cannot hold */
        PLIM_TRY(plim_snapshot_stream(&b->snap, -1, index, err));
    } else {
        if (b->stream_index.n >= PLIM_NO_POOL - 1) {
            return plim__fail(err, PLIM_E_BUDGET, "more than 65,534 different streams");
        }
        PLIM_TRY(plim_map_put(&b->stream_index, v.u, b->snap.streams.n, err));
        PLIM_TRY(plim_vec_push(&b->snap.streams, err, (int64_t)v.u));
        *index = (uint16_t)(b->snap.streams.n - 1);
    }
    b->last_stream = (int64_t)v.u;
    b->last_stream_index = *index;
    return PLIM_OK;
}

/* A list of two integers, as JSON and some tools write a pool id, as a pair. */
static enum plim_status pair_of_list(struct plim_build *b, struct plim_value *v,
                                     struct plim_err *err)
{
    size_t n;
    if (!plim__build_is_list(b, *v, &n) || n != 2) {
        return PLIM_OK;
    }
    struct plim_value first = plim__build_item(b, *v, 0, NULL);
    struct plim_value second = plim__build_item(b, *v, 1, NULL);
    if (first.kind != PLIM_V_INT || second.kind != PLIM_V_INT) {
        return PLIM_OK;
    }
    return plim__build_pair(b, first.u, second.u, v, err);
}

enum plim_status plim__build_pool(struct plim_build *b, struct plim_value v, uint16_t *index,
                                  bool *ok, struct plim_err *err)
{
    PLIM_TRY(pair_of_list(b, &v, err));
    *ok = v.kind == PLIM_V_PAIR;
    if (!*ok) {
        return PLIM_OK;
    }
    uint64_t *found = plim_map_get(&b->pool_index, v.u);
    if (found) {
        *index = (uint16_t)*found;
    } else {
        struct plim_pool_id id = b->pairs.items[v.u];
        uint16_t added = 0; /* the default pool (0,0) was there from the start */
        if (id.a != 0 || id.b != 0) {
            if (b->snap.pools.n >= PLIM_NO_POOL) {
                return plim__fail(err, PLIM_E_BUDGET, "more than 65,534 different pools");
            }
            PLIM_TRY(plim_vec_push(&b->snap.pools, err, id));
            added = (uint16_t)(b->snap.pools.n - 1);
        }
        PLIM_TRY(plim_map_put(&b->pool_index, v.u, added, err));
        *index = added;
    }
    b->last_pool_pair = (uint32_t)v.u;
    b->last_pool_index = *index;
    return PLIM_OK;
}

/* -- segments ------------------------------------------------------------------------------------ */

static void set_count(uint64_t *field, uint8_t *has, unsigned bit, struct plim_value v)
{
    uint64_t number;
    if (plim__value_u64(v, &number)) {
        *field = number;
        *has |= (uint8_t)bit;
    } else {
        *has |= PLIM_IS_BAD;
    }
}

/* Copy scattered blocks together, so that they are one run; the list then stands for the copies. */
static enum plim_status gather_blocks(struct plim_build *b, struct plim_raw_segment *s,
                                      struct plim_value list, size_t n, struct plim_err *err)
{
    struct plim_run run = {(uint32_t)b->blocks.n, 0, PLIM_CELL_BLOCK};
    for (size_t i = 0; i < n; i++) {
        uint32_t item = 0;
        struct plim_value it = plim__build_item(b, list, i, &item);
        if (it.kind != PLIM_V_CELL || plim__cell_kind(item) != PLIM_CELL_BLOCK ||
            b->blocks.n >= PLIM_CELL_INDEX_MAX) {
            s->has |= PLIM_IS_BAD;
            continue;
        }
        PLIM_TRY(plim_vec_reserve(&b->blocks, 1, err));
        b->blocks.items[b->blocks.n++] = b->blocks.items[plim__cell_index(item)];
        run.n++;
    }
    s->s.first_block = run.first;
    s->s.n_blocks = run.n;
    if (b->runs.n >= PLIM_CELL_INDEX_MAX) {
        return plim__build_many_cells(err);
    }
    PLIM_TRY(plim_vec_push(&b->runs, err, run));
    b->cells.items[list.u] = plim__cell(PLIM_CELL_RUN, b->runs.n - 1) | PLIM_CELL_USED;
    return PLIM_OK;
}

/* The blocks of a segment are one run. Two segments may name the same one here (a dict that is
 * replaced later); which of them counts shows at the end. */
static enum plim_status set_blocks(struct plim_build *b, struct plim_raw_segment *s,
                                   struct plim_value v, struct plim_err *err)
{
    size_t n;
    if (!plim__build_is_list(b, v, &n)) {
        s->has |= PLIM_IS_BAD;
        return PLIM_OK;
    }
    uint32_t cell = plim__cell_of(b, v);
    b->cells.items[v.u] |= PLIM_CELL_USED;
    if (plim__cell_kind(cell) == PLIM_CELL_RUN) {
        struct plim_run run = b->runs.items[plim__cell_index(cell)];
        if (run.kind == PLIM_CELL_BLOCK) {
            s->s.first_block = run.first;
            s->s.n_blocks = run.n;
            return PLIM_OK;
        }
    }
    return gather_blocks(b, s, v, n, err);
}

/* The fields of a segment that name something else than a number. */
static enum plim_status set_segment_link(struct plim_build *b, struct plim_raw_segment *s,
                                         struct plim_value key, struct plim_value v,
                                         struct plim_err *err)
{
    bool ok = true;
    switch (key.kind == PLIM_V_STR ? key.u : PLIM_KEY_COUNT) {
    case PLIM_K_STREAM:
        PLIM_TRY(plim__build_stream(b, v, &s->s.stream, &ok, err));
        break;
    case PLIM_K_SEGMENT_POOL_ID:
    case PLIM_K_POOL_ID:
        PLIM_TRY(plim__build_pool(b, v, &s->s.pool, &ok, err));
        break;
    case PLIM_K_FRAMES:
        return plim__build_stack(b, v, &s->s.stack, err);
    case PLIM_K_BLOCKS:
        return set_blocks(b, s, v, err);
    case PLIM_K_SEGMENT_TYPE:
        ok = v.kind == PLIM_V_STR && (v.u == PLIM_W_SMALL || v.u == PLIM_W_LARGE);
        s->s.small = ok && v.u == PLIM_W_SMALL;
        break;
    case PLIM_K_IS_EXPANDABLE:
        ok = v.kind == PLIM_V_BOOL || v.kind == PLIM_V_INT;
        s->s.expandable = ok && v.u != 0;
        break;
    default:
        return plim__build_unknown(b, key, err);
    }
    s->has |= ok ? 0 : PLIM_IS_BAD;
    return PLIM_OK;
}

static enum plim_status set_segment_field(struct plim_build *b, struct plim_raw_segment *s,
                                          struct plim_value key, struct plim_value v,
                                          struct plim_err *err)
{
    switch (key.kind == PLIM_V_STR ? key.u : PLIM_KEY_COUNT) {
    case PLIM_K_DEVICE:
        set_count(&s->device, &s->has, 0, v);
        return PLIM_OK;
    case PLIM_K_ADDRESS:
        set_count(&s->s.addr, &s->has, PLIM_HAS_ADDR, v);
        return PLIM_OK;
    case PLIM_K_TOTAL_SIZE:
        set_count(&s->s.size, &s->has, PLIM_HAS_SIZE, v);
        return PLIM_OK;
    case PLIM_K_ALLOCATED_SIZE:
        set_count(&s->allocated, &s->has, PLIM_HAS_ALLOCATED, v);
        return PLIM_OK;
    case PLIM_K_ACTIVE_SIZE:
        set_count(&s->active, &s->has, PLIM_HAS_ACTIVE, v);
        return PLIM_OK;
    case PLIM_K_REQUESTED_SIZE:
        set_count(&s->requested, &s->has, PLIM_HAS_REQUESTED, v);
        return PLIM_OK;
    default:
        return set_segment_link(b, s, key, v, err);
    }
}

enum plim_status plim__build_segment(struct plim_build *b, const struct plim_value *pairs, size_t n,
                                     size_t *index, struct plim_err *err)
{
    struct plim_raw_segment s = {.s.stack = PLIM_NO_STACK};
    if (*index != PLIM_NEW) {
        s = b->segments.items[*index];
    }
    for (size_t i = 0; i < 2 * n; i += 2) {
        PLIM_TRY(set_segment_field(b, &s, pairs[i], pairs[i + 1], err));
    }
    if (*index == PLIM_NEW) {
        PLIM_TRY(plim_vec_push(&b->segments, err, s));
        *index = b->segments.n - 1;
    } else {
        b->segments.items[*index] = s;
    }
    return PLIM_OK;
}

/* -- blocks -------------------------------------------------------------------------------------- */

static bool set_state(struct plim_raw_block *k, struct plim_value v)
{
    if (v.kind != PLIM_V_STR) {
        return false;
    }
    k->has |= PLIM_HAS_STATE;
    if (v.u == PLIM_W_ACTIVE_ALLOCATED) {
        k->b.state = PLIM_BLOCK_ALLOCATED;
    } else if (v.u == PLIM_W_ACTIVE_PENDING_FREE || v.u == PLIM_W_ACTIVE_AWAITING_FREE) {
        k->b.state = PLIM_BLOCK_PENDING_FREE;
    } else {
        k->b.state = PLIM_BLOCK_INACTIVE;
        return v.u == PLIM_W_INACTIVE;
    }
    return true;
}

/* The newest item of a history is its first. */
static bool set_history(struct plim_build *b, struct plim_raw_block *k, struct plim_value v)
{
    size_t n;
    uint32_t item = 0;
    if (!plim__build_is_list(b, v, &n)) {
        return false;
    }
    if (n > 0) {
        struct plim_value first = plim__build_item(b, v, 0, &item);
        if (first.kind != PLIM_V_CELL || plim__cell_kind(item) != PLIM_CELL_PAST) {
            return false;
        }
        k->past = plim__cell_index(item);
    }
    return true;
}

static enum plim_status set_block_field(struct plim_build *b, struct plim_raw_block *k,
                                        struct plim_value key, struct plim_value v,
                                        struct plim_err *err)
{
    bool ok = true;
    switch (key.kind == PLIM_V_STR ? key.u : PLIM_KEY_COUNT) {
    case PLIM_K_ADDRESS:
    case PLIM_K_ADDR:
        set_count(&k->b.addr, &k->has, PLIM_HAS_ADDR, v);
        break;
    case PLIM_K_SIZE:
        set_count(&k->b.size, &k->has, PLIM_HAS_SIZE, v);
        break;
    case PLIM_K_REQUESTED_SIZE:
        set_count(&k->b.requested, &k->has, PLIM_HAS_REQUESTED, v);
        break;
    case PLIM_K_STATE:
        ok = set_state(k, v);
        break;
    case PLIM_K_HISTORY:
        ok = set_history(b, k, v);
        break;
    case PLIM_K_FRAMES:
        return plim__build_stack(b, v, &k->b.stack, err);
    case PLIM_K_CPP_FRAMES: {
        uint32_t cpp;
        PLIM_TRY(plim__build_stack(b, v, &cpp, err));
        return plim__build_join(b, cpp, k->b.stack, &k->b.stack, err);
    }
    default:
        return plim__build_unknown(b, key, err);
    }
    k->has |= ok ? 0 : PLIM_IS_BAD;
    return PLIM_OK;
}

enum plim_status plim__build_block(struct plim_build *b, const struct plim_value *pairs, size_t n,
                                   size_t *index, struct plim_err *err)
{
    struct plim_raw_block k = {
        .b = {.stack = PLIM_NO_STACK, .alloc_event = PLIM_NO_EVENT},
        .past = UINT32_MAX,
    };
    if (*index != PLIM_NEW) {
        k = b->blocks.items[*index];
    }
    for (size_t i = 0; i < 2 * n; i += 2) {
        PLIM_TRY(set_block_field(b, &k, pairs[i], pairs[i + 1], err));
    }
    if (*index == PLIM_NEW) {
        PLIM_TRY(plim_vec_push(&b->blocks, err, k));
        *index = b->blocks.n - 1;
    } else {
        b->blocks.items[*index] = k;
    }
    return PLIM_OK;
}

enum plim_status plim__build_past(struct plim_build *b, const struct plim_value *pairs, size_t n,
                                  size_t *index, struct plim_err *err)
{
    struct plim_past p = {.stack = PLIM_NO_STACK};
    uint32_t cpp = PLIM_NO_STACK;
    if (*index != PLIM_NEW) {
        p = b->pasts.items[*index];
    }
    for (size_t i = 0; i < 2 * n; i += 2) {
        switch (pairs[i].kind == PLIM_V_STR ? pairs[i].u : PLIM_KEY_COUNT) {
        case PLIM_K_REAL_SIZE:
            p.has_size = plim__value_u64(pairs[i + 1], &p.real_size);
            break;
        case PLIM_K_FRAMES:
            PLIM_TRY(plim__build_stack(b, pairs[i + 1], &p.stack, err));
            break;
        case PLIM_K_CPP_FRAMES:
            PLIM_TRY(plim__build_stack(b, pairs[i + 1], &cpp, err));
            break;
        case PLIM_K_ADDR: /* the block's own address */
            break;
        default:
            PLIM_TRY(plim__build_unknown(b, pairs[i], err));
        }
    }
    if (cpp != PLIM_NO_STACK) {
        PLIM_TRY(plim__build_join(b, cpp, p.stack, &p.stack, err));
    }
    if (*index == PLIM_NEW) {
        PLIM_TRY(plim_vec_push(&b->pasts, err, p));
        *index = b->pasts.n - 1;
    } else {
        b->pasts.items[*index] = p;
    }
    return PLIM_OK;
}
