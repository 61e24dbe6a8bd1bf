/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace entries and annotations: one dict, one element of a column. This is where almost all of a big
 * snapshot goes through, so the usual values (the same stream, pool and stack as before) take the
 * short way.
 */

#include "format/build_internal.h"

/* An event on its way, with the texts that are stored beside it. */
struct draft {
    struct plim_event e;
    uint32_t compile_context; /* interned, or PLIM_NO_ID */
    uint32_t user_metadata;
    uint32_t cpp_stack; /* of `cpp_frames`, or PLIM_NO_STACK */
};

static enum plim_status set_action(struct plim_build *b, struct draft *d, struct plim_value v,
                                   struct plim_err *err)
{
    d->e.action = PLIM_ACTION_UNKNOWN;
    if (v.kind != PLIM_V_STR) {
        d->e.pad[0] |= PLIM_EVENT_BAD;
    } else if (v.u >= PLIM_WORD_COUNT && v.u < PLIM_WORD_COUNT + PLIM_ACTION_COUNT) {
        d->e.action = (uint8_t)(v.u - PLIM_WORD_COUNT);
    } else { /* a newer PyTorch's action: kept, not understood */
        return plim__build_unknown(b, v, err);
    }
    return PLIM_OK;
}

static void set_number(struct draft *d, uint64_t *field, struct plim_value v, unsigned missing)
{
    if (plim__value_u64(v, field)) {
        d->e.pad[0] &= (uint8_t)~missing;
    } else {
        *field = 0;
        d->e.pad[0] |= PLIM_EVENT_BAD;
    }
}

/* A text; "", "N/A" and None say that there is none. */
static uint32_t text_of(struct plim_value v)
{
    bool none = v.kind != PLIM_V_STR || v.u == PLIM_W_EMPTY || v.u == PLIM_W_NOT_AVAILABLE;
    return none ? PLIM_NO_ID : (uint32_t)v.u;
}

static inline enum plim_status set_stream(struct plim_build *b, struct draft *d,
                                          struct plim_value v, struct plim_err *err)
{
    if (v.kind == PLIM_V_INT && (int64_t)v.u == b->last_stream && b->snap.streams.n > 0) {
        d->e.stream = b->last_stream_index;
        return PLIM_OK;
    }
    bool ok;
    PLIM_TRY(plim__build_stream(b, v, &d->e.stream, &ok, err));
    d->e.pad[0] |= ok ? 0 : PLIM_EVENT_BAD;
    return PLIM_OK;
}

static inline enum plim_status set_pool(struct plim_build *b, struct draft *d, struct plim_value v,
                                        struct plim_err *err)
{
    if (v.kind == PLIM_V_PAIR && v.u == b->last_pool_pair) {
        d->e.pool = b->last_pool_index;
        return PLIM_OK;
    }
    bool ok;
    PLIM_TRY(plim__build_pool(b, v, &d->e.pool, &ok, err));
    d->e.pool = ok ? d->e.pool : PLIM_NO_POOL;
    return PLIM_OK;
}

static inline enum plim_status set_frames(struct plim_build *b, uint32_t *stack,
                                          struct plim_value v, struct plim_err *err)
{
    if (v.kind == PLIM_V_CELL) {
        uint32_t *cell = &b->cells.items[v.u];
        if (plim__cell_kind(*cell) == PLIM_CELL_STACK) {
            if (!(*cell & PLIM_CELL_USED)) {
                *cell |= PLIM_CELL_USED;
            }
            *stack = plim__cell_index(*cell);
            return PLIM_OK;
        }
    }
    return plim__build_stack(b, v, stack, err);
}

static inline enum plim_status set_field(struct plim_build *b, struct draft *d,
                                         struct plim_value key, struct plim_value v,
                                         struct plim_err *err)
{
    switch (key.kind == PLIM_V_STR ? key.u : PLIM_KEY_COUNT) {
    case PLIM_K_ACTION:
        return set_action(b, d, v, err);
    case PLIM_K_ADDR:
    case PLIM_K_DEVICE_FREE:
        set_number(d, &d->e.addr, v, PLIM_EVENT_NO_ADDR);
        return PLIM_OK;
    case PLIM_K_SIZE:
        set_number(d, &d->e.size, v, PLIM_EVENT_NO_SIZE);
        return PLIM_OK;
    case PLIM_K_TIME_US:
        set_number(d, &d->e.time_us, v, 0);
        b->has_times = true;
        return PLIM_OK;
    case PLIM_K_STREAM:
        return set_stream(b, d, v, err);
    case PLIM_K_POOL_ID:
    case PLIM_K_SEGMENT_POOL_ID:
        return set_pool(b, d, v, err);
    case PLIM_K_FRAMES:
        return set_frames(b, &d->e.stack, v, err);
    case PLIM_K_CPP_FRAMES:
        return plim__build_stack(b, v, &d->cpp_stack, err);
    case PLIM_K_COMPILE_CONTEXT:
        d->compile_context = text_of(v);
        return PLIM_OK;
    case PLIM_K_USER_METADATA:
        d->user_metadata = text_of(v);
        return PLIM_OK;
    case PLIM_K_DEVICE: /* known by the trace's place */
        return PLIM_OK;
    default:
        return plim__build_unknown(b, key, err);
    }
}

/* The index of the pair of texts, added when new. */
static enum plim_status note_of(struct plim_build *b, const struct draft *d, uint32_t *note,
                                struct plim_err *err)
{
    uint64_t key = (uint64_t)d->compile_context << 32 | d->user_metadata;
    if (key == PLIM_MAP_NO_KEY) { /* neither */
        *note = PLIM_NO_ID;
        return PLIM_OK;
    }
    uint64_t *found = plim_map_get(&b->note_index, key);
    if (found) {
        *note = (uint32_t)*found;
        return PLIM_OK;
    }
    struct plim_note added = {d->compile_context, d->user_metadata};
    PLIM_TRY(plim_vec_push(&b->snap.notes, err, added));
    *note = (uint32_t)(b->snap.notes.n - 1);
    return plim_map_put(&b->note_index, key, *note, err);
}

/* A draft of a new event, or of one that changes once more. */
static void open_draft(struct plim_build *b, struct draft *d, size_t index)
{
    d->compile_context = d->user_metadata = PLIM_NO_ID;
    d->cpp_stack = PLIM_NO_STACK;
    if (index == PLIM_NEW) {
        d->e = (struct plim_event){
            .stack = PLIM_NO_STACK,
            .note = PLIM_NO_ID,
            .pool = PLIM_NO_POOL,
            .pad = {PLIM_EVENT_NO_ADDR | PLIM_EVENT_NO_SIZE},
        };
        return;
    }
    d->e = b->events.items[index];
    b->by_action[d->e.action]--;
    b->doubtful -= d->e.pad[0] != 0;
    if (d->e.note != PLIM_NO_ID) {
        d->compile_context = b->snap.notes.items[d->e.note].compile_context;
        d->user_metadata = b->snap.notes.items[d->e.note].user_metadata;
    }
}

enum plim_status plim__build_event(struct plim_build *b, const struct plim_value *pairs, size_t n,
                                   size_t *index, struct plim_err *err)
{
    struct draft d;
    open_draft(b, &d, *index);
    for (size_t i = 0; i < 2 * n; i += 2) {
        PLIM_TRY(set_field(b, &d, pairs[i], pairs[i + 1], err));
    }
    PLIM_TRY(note_of(b, &d, &d.e.note, err));
    if (d.cpp_stack != PLIM_NO_STACK) {
        PLIM_TRY(plim__build_join(b, d.cpp_stack, d.e.stack, &d.e.stack, err));
    }
    if (*index == PLIM_NEW) {
        if (b->events.n >= PLIM_CELL_INDEX_MAX) {
            return plim__fail(err, PLIM_E_BUDGET, "more than 2^27 trace entries");
        }
        PLIM_TRY(plim_vec_reserve(&b->events, 1, err));
        *index = b->events.n++;
    }
    b->events.items[*index] = d.e;
    b->by_action[d.e.action]++;
    b->doubtful += d.e.pad[0] != 0;
    return PLIM_OK;
}

enum plim_status plim__build_doubt(struct plim_build *b, size_t event, struct plim_err *err)
{
    struct plim_event *e = &b->events.items[event];
    bool sized = e->action != PLIM_ACTION_UNKNOWN && e->action != PLIM_ACTION_ANNOTATE &&
                 e->action != PLIM_ACTION_SNAPSHOT;
    const char *text = NULL;
    if (e->pad[0] & PLIM_EVENT_BAD) {
        text = "a field is negative or of a wrong type; the entry is left out of account";
    } else if (sized && (e->pad[0] & PLIM_EVENT_NO_SIZE)) {
        text = "has no size; the entry is left out of account";
    } else if (sized && e->action != PLIM_ACTION_OOM && (e->pad[0] & PLIM_EVENT_NO_ADDR)) {
        text = "has no address; the entry is left out of account";
    }
    if (e->action == PLIM_ACTION_OOM && (e->pad[0] & PLIM_EVENT_NO_ADDR)) {
        e->addr = PLIM_FREE_NOT_RECORDED;
    }
    b->doubtful -= e->pad[0] != 0;
    e->pad[0] = 0;
    if (!text) {
        return PLIM_OK;
    }
    b->by_action[e->action]--;
    b->by_action[PLIM_ACTION_UNKNOWN]++;
    e->action = PLIM_ACTION_UNKNOWN;
    struct plim_event_finding finding = {(uint32_t)event, text};
    return b->event_findings.n < 1000 ? plim_vec_push(&b->event_findings, err, finding)
                                      : (b->snap.findings_dropped++, PLIM_OK);
}

enum plim_status plim__build_annotation(struct plim_build *b, const struct plim_value *pairs,
                                        size_t n, size_t *index, struct plim_err *err)
{
    struct plim_annotation a = {.name = PLIM_NO_ID};
    if (*index != PLIM_NEW) {
        a = b->annotations.items[*index];
    }
    for (size_t i = 0; i < 2 * n; i += 2) {
        uint64_t number = 0;
        struct plim_value v = pairs[i + 1];
        switch (pairs[i].kind == PLIM_V_STR ? pairs[i].u : PLIM_KEY_COUNT) {
        case PLIM_K_STAGE:
            a.end = v.kind == PLIM_V_STR && v.u == PLIM_W_END;
            break;
        case PLIM_K_NAME:
            a.name = v.kind == PLIM_V_STR ? (uint32_t)v.u : PLIM_NO_ID;
            break;
        case PLIM_K_DEVICE:
            a.device = plim__value_u64(v, &number) && number < UINT32_MAX ? (uint32_t)number : 0;
            break;
        case PLIM_K_TIME_US:
            a.time_us = plim__value_u64(v, &number) ? number : 0;
            break;
        default: /* annotations are free to carry more */
            break;
        }
    }
    if (*index == PLIM_NEW) {
        PLIM_TRY(plim_vec_push(&b->annotations, err, a));
        *index = b->annotations.n - 1;
    } else {
        b->annotations.items[*index] = a;
    }
    return PLIM_OK;
}
