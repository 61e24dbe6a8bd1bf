/* SPDX-License-Identifier: Apache-2.0 */
/* Lists: a list of frames becomes a stack, a list of new events or blocks a run, the rest is boxed. */

#include "format/build_internal.h"

static bool is_column(enum plim_cell_kind kind)
{
    return kind >= PLIM_CELL_EVENT && kind <= PLIM_CELL_ANNOTATION;
}

/* The kind that all items have, or PLIM_CELL_LIST when they are mixed or no containers. */
static enum plim_cell_kind common_kind(const struct plim_build *b, const struct plim_value *items,
                                       size_t n)
{
    if (n == 0 || items[0].kind != PLIM_V_CELL) {
        return PLIM_CELL_LIST;
    }
    enum plim_cell_kind kind = plim__cell_kind(plim__cell_of(b, items[0]));
    for (size_t i = 1; i < n; i++) {
        if (items[i].kind != PLIM_V_CELL || plim__cell_kind(plim__cell_of(b, items[i])) != kind) {
            return PLIM_CELL_LIST;
        }
    }
    return kind;
}

/* Do the items lie one behind the other in their column, the first at `first`? */
static bool consecutive(const struct plim_build *b, const struct plim_value *items, size_t n,
                        size_t first)
{
    for (size_t i = 0; i < n; i++) {
        if (plim__cell_index(plim__cell_of(b, items[i])) != first + i) {
            return false;
        }
    }
    return true;
}

/* An empty list of frames is a stack, all at once. */
static enum plim_status append_frames(struct plim_build *b, uint32_t *cell,
                                      const struct plim_value *items, size_t n,
                                      struct plim_err *err)
{
    uint32_t id;
    b->ids.n = 0;
    PLIM_TRY(plim_vec_reserve(&b->ids, n, err));
    for (size_t i = 0; i < n; i++) {
        uint32_t *item = &b->cells.items[items[i].u];
        b->ids.items[i] = plim__cell_index(*item);
        if (!(*item & PLIM_CELL_USED)) {
            *item |= PLIM_CELL_USED;
        }
    }
    PLIM_TRY(plim_stacks_stack(&b->snap.stacks, b->ids.items, n, &id, err));
    *cell = plim__cell(PLIM_CELL_STACK, id);
    return PLIM_OK;
}

static enum plim_status append_run(struct plim_build *b, uint32_t *cell, enum plim_cell_kind kind,
                                   size_t first, size_t n, struct plim_err *err)
{
    struct plim_run run = {(uint32_t)first, (uint32_t)n, kind};
    if (b->runs.n >= PLIM_CELL_INDEX_MAX) {
        return plim__build_many_cells(err);
    }
    PLIM_TRY(plim_vec_push(&b->runs, err, run));
    *cell = plim__cell(PLIM_CELL_RUN, b->runs.n - 1);
    return PLIM_OK;
}

/* A cell that says "element `index` of that column", for a run that must be boxed after all. */
static enum plim_status box_element(struct plim_build *b, uint32_t box, enum plim_cell_kind kind,
                                    size_t index, struct plim_err *err)
{
    struct plim_value v;
    PLIM_TRY(plim__build_new(b, kind, &v, err));
    b->cells.items[v.u] = plim__cell(kind, index);
    return plim__build_box_push(b, box, &v, 1, err);
}

/* Turn a list of whatever kind into a box that holds the same elements. */
static enum plim_status unfold(struct plim_build *b, struct plim_value list, struct plim_err *err)
{
    uint32_t old = plim__cell_of(b, list);
    uint32_t box;
    PLIM_TRY(plim__build_box_new(b, &box, PLIM_CELL_BOX_LIST, err));
    b->cells.items[list.u] = box;
    if (plim__cell_kind(old) == PLIM_CELL_STACK) {
        size_t n;
        plim_stacks_frames(&b->snap.stacks, plim__cell_index(old), &n);
        for (size_t i = 0; i < n; i++) {
            const uint32_t *ids = plim_stacks_frames(&b->snap.stacks, plim__cell_index(old), &n);
            PLIM_TRY(box_element(b, box, PLIM_CELL_FRAME, ids[i], err));
        }
    } else if (plim__cell_kind(old) == PLIM_CELL_RUN) {
        struct plim_run run = b->runs.items[plim__cell_index(old)];
        for (size_t i = 0; i < run.n; i++) {
            PLIM_TRY(box_element(b, box, run.kind, run.first + i, err));
        }
    }
    return PLIM_OK;
}

/* Events are complete when they are put into a list: look at those that said too little. */
static enum plim_status check_doubtful(struct plim_build *b, const struct plim_value *items,
                                       size_t n, struct plim_err *err)
{
    for (size_t i = 0; i < n && b->doubtful > 0; i++) {
        size_t event = plim__cell_index(plim__cell_of(b, items[i]));
        if (b->events.items[event].pad[0] != 0) {
            PLIM_TRY(plim__build_doubt(b, event, err));
        }
    }
    return PLIM_OK;
}

/* Try the short forms; false in *done when the list must be boxed. */
static enum plim_status append_typed(struct plim_build *b, struct plim_value list,
                                     const struct plim_value *items, size_t n, bool *done,
                                     struct plim_err *err)
{
    uint32_t *cell = &b->cells.items[list.u];
    enum plim_cell_kind kind = common_kind(b, items, n);
    if (kind == PLIM_CELL_EVENT && b->doubtful > 0) {
        PLIM_TRY(check_doubtful(b, items, n, err));
    }
    *done = false;
    if (plim__cell_kind(*cell) == PLIM_CELL_LIST) {
        if (kind == PLIM_CELL_FRAME) {
            *done = true;
            return append_frames(b, cell, items, n, err);
        }
        size_t first = is_column(kind) ? plim__cell_index(plim__cell_of(b, items[0])) : 0;
        if (is_column(kind) && consecutive(b, items, n, first)) {
            *done = true;
            return append_run(b, cell, kind, first, n, err);
        }
    } else if (plim__cell_kind(*cell) == PLIM_CELL_RUN) {
        struct plim_run *run = &b->runs.items[plim__cell_index(*cell)];
        if (run->kind == kind && consecutive(b, items, n, (size_t)run->first + run->n)) {
            run->n += (uint32_t)n;
            *done = true;
        }
    }
    return PLIM_OK;
}

enum plim_status plim__build_append(struct plim_build *b, struct plim_value list,
                                    struct plim_value *items, size_t n, struct plim_err *err)
{
    if (list.kind != PLIM_V_CELL) {
        return plim__fail(err, PLIM_E_DATA, "items are appended to a value that is no list");
    }
    size_t before;
    bool done;
    if (!plim__build_is_list(b, list, &before)) {
        return plim__fail(err, PLIM_E_DATA, "items are appended to a dict");
    }
    if (n == 0) {
        return PLIM_OK;
    }
    if (plim__cell_of(b, list) & PLIM_CELL_USED) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "a list changes after it was used");
    }
    PLIM_TRY(plim__build_settle_all(b, list, items, n, 1, err));
    PLIM_TRY(append_typed(b, list, items, n, &done, err));
    if (done) {
        return PLIM_OK;
    }
    if (plim__cell_kind(plim__cell_of(b, list)) != PLIM_CELL_BOX_LIST) {
        PLIM_TRY(unfold(b, list, err));
    }
    return plim__build_box_push(b, plim__cell_of(b, list), items, n, err);
}

bool plim__build_is_list(const struct plim_build *b, struct plim_value v, size_t *n)
{
    *n = 0;
    if (v.kind != PLIM_V_CELL) {
        return false;
    }
    uint32_t cell = plim__cell_of(b, v);
    size_t index = plim__cell_index(cell);
    switch (plim__cell_kind(cell)) {
    case PLIM_CELL_LIST:
        return true;
    case PLIM_CELL_BOX_LIST:
        *n = b->boxes.items[index].n;
        return true;
    case PLIM_CELL_STACK:
        *n = b->snap.stacks.stacks.items[index].n;
        return true;
    case PLIM_CELL_RUN:
        *n = b->runs.items[index].n;
        return true;
    default:
        return false;
    }
}

struct plim_value plim__build_item(struct plim_build *b, struct plim_value list, size_t i,
                                   uint32_t *cell)
{
    uint32_t of = plim__cell_of(b, list);
    struct plim_value v = plim__value(PLIM_V_CELL, UINT64_MAX); /* known by its cell only */
    uint32_t found = plim__cell(PLIM_CELL_LIST, 0);
    size_t n;
    if (plim__cell_kind(of) == PLIM_CELL_RUN) {
        struct plim_run run = b->runs.items[plim__cell_index(of)];
        found = plim__cell(run.kind, run.first + i);
    } else if (plim__cell_kind(of) == PLIM_CELL_STACK) {
        found = plim__cell(PLIM_CELL_FRAME,
                           plim_stacks_frames(&b->snap.stacks, plim__cell_index(of), &n)[i]);
    } else {
        v = plim__box_of(b, of)->items[i];
        found = v.kind == PLIM_V_CELL ? plim__cell_of(b, v) : found;
    }
    if (cell) {
        *cell = found;
    }
    return v;
}

const char *plim__build_describe(const struct plim_build *b, struct plim_value v)
{
    static const char *const kinds[PLIM_V_KINDS] = {
        "None", "a boolean", "a number", "a number", "a number", "a number", "text", "a tuple", ""};
    size_t n;
    if (v.kind != PLIM_V_CELL) {
        return kinds[v.kind];
    }
    return plim__build_is_list(b, v, &n) ? "a list" : "a dict";
}
