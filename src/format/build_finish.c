/* SPDX-License-Identifier: Apache-2.0 */
/* The last step: what the root is, and the snapshot put together from it. */

#include "format/build_internal.h"

#include <stdio.h>

/* -- cycles -------------------------------------------------------------------------------------- */

/* Walk the boxes below v; a container that holds itself, or too deep a nest, is refused. Recursion is
 * bounded by the nesting limit. Everything but boxes is flat already. */
static enum plim_status refuse_cycles(struct plim_build *b, struct plim_value v, uint64_t depth,
                                      struct plim_err *err)
{
    uint32_t cell = v.kind == PLIM_V_CELL ? plim__cell_of(b, v) : 0;
    enum plim_cell_kind kind = plim__cell_kind(cell);
    if (kind != PLIM_CELL_BOX_DICT && kind != PLIM_CELL_BOX_LIST) {
        return PLIM_OK;
    }
    struct plim_box *box = plim__box_of(b, cell);
    if (box->visiting) {
        return plim__fail(err, PLIM_E_DATA, "a list or dict contains itself");
    }
    if (box->visited) {
        return PLIM_OK;
    }
    if (depth >= b->limits.nesting) {
        plim__fail(err, PLIM_E_BUDGET, "lists and dicts are nested more than %llu deep",
                   (unsigned long long)b->limits.nesting);
        plim__err_hint(err, "raise the limit (--max-nesting) if you trust the file");
        return PLIM_E_BUDGET;
    }
    box->visiting = true;
    for (uint32_t i = 0; i < box->n; i++) {
        PLIM_TRY(refuse_cycles(b, box->items[i], depth + 1, err));
    }
    box->visiting = false;
    box->visited = true;
    return PLIM_OK;
}

/* -- what it is ---------------------------------------------------------------------------------- */

/* The version range that the keys tell; later rows need newer versions, the last that fits is it. */
static const char *dict_layout(uint64_t seen)
{
    static const struct {
        uint64_t key;
        const char *text;
    } rows[] = {
        {PLIM_KEY_BIT(HOST_SEGMENTS), "dict of torch 2.14 or newer"},
        {PLIM_KEY_BIT(POOL_ID), "dict of torch 2.12 or newer"},
        {PLIM_KEY_BIT(USER_METADATA), "dict of torch 2.10 or newer"},
        {PLIM_KEY_BIT(COMPILE_CONTEXT), "dict of torch 2.8 or newer"},
        {PLIM_KEY_BIT(EXTERNAL_ANNOTATIONS), "dict of torch 2.5 or newer"},
        {PLIM_KEY_BIT(ALLOCATOR_SETTINGS), "dict of torch 2.2 or newer"},
        {PLIM_KEY_BIT(HISTORY), "dict of torch 2.0"},
        {PLIM_KEY_BIT(REQUESTED_SIZE), "dict of torch 2.1 or newer"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (seen & rows[i].key) {
            return rows[i].text;
        }
    }
    return "dict of torch 2.0 or newer";
}

static const char *list_layout(uint64_t seen)
{
    if (seen & PLIM_KEY_BIT(HISTORY)) {
        return "list of segments of torch 1.13 or 2.0";
    }
    return seen & PLIM_KEY_BIT(REQUESTED_SIZE) ? "list of segments of torch 2.1 or newer"
                                               : "list of segments of torch 1.x";
}

/* "not a snapshot", with the first keys of what it is instead. */
static enum plim_status refuse_root(struct plim_build *b, struct plim_value root,
                                    struct plim_err *err)
{
    char keys[160] = "";
    uint32_t cell = root.kind == PLIM_V_CELL ? plim__cell_of(b, root) : 0;
    if (root.kind == PLIM_V_CELL && plim__cell_kind(cell) == PLIM_CELL_BOX_DICT) {
        const struct plim_box *box = plim__box_of(b, cell);
        size_t used = 0;
        for (uint32_t i = 0; i + 1 < box->n && i < 8 && used < sizeof(keys); i += 2) {
            struct plim_str key = box->items[i].kind == PLIM_V_STR
                                      ? plim_intern_str(&b->snap.strings, (uint32_t)box->items[i].u)
                                      : PLIM_STR("?");
            used += (size_t)snprintf(keys + used, sizeof(keys) - used, "%s'%.*s'", i ? ", " : "",
                                     (int)(key.n > 24 ? 24 : key.n), key.p);
        }
    }
    plim__fail(err, PLIM_E_DATA, "this is %s%s%s, not a PyTorch memory snapshot",
               plim__build_describe(b, root), keys[0] ? " with the keys " : "", keys);
    plim__err_hint(err,
                   "torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") writes one; it has the "
                   "keys 'segments' and 'device_traces'");
    return PLIM_E_DATA;
}

static bool has_key(struct plim_build *b, struct plim_value dict, enum plim_word key)
{
    return plim__build_get(b, dict, key).kind != PLIM_V_NONE;
}

/* Is the list one of segments? An empty one is: a process that has allocated nothing. */
static bool is_segment_list(struct plim_build *b, struct plim_value root)
{
    size_t n;
    uint32_t cell;
    if (!plim__build_is_list(b, root, &n)) {
        return false;
    }
    if (n == 0) {
        return true;
    }
    struct plim_value first = plim__build_item(b, root, 0, &cell);
    return first.kind == PLIM_V_CELL && plim__cell_kind(cell) == PLIM_CELL_SEGMENT;
}

/* -- putting together ---------------------------------------------------------------------------- */

static enum plim_status take_annotations(struct plim_build *b, struct plim_value v,
                                         struct plim_err *err)
{
    size_t n;
    if (!plim__build_is_list(b, v, &n)) {
        return PLIM_OK;
    }
    PLIM_TRY(plim_vec_reserve(&b->snap.annotations, n, err));
    for (size_t i = 0; i < n; i++) {
        uint32_t cell;
        struct plim_value item = plim__build_item(b, v, i, &cell);
        if (item.kind == PLIM_V_CELL && plim__cell_kind(cell) == PLIM_CELL_ANNOTATION) {
            b->snap.annotations.items[b->snap.annotations.n++] =
                b->annotations.items[plim__cell_index(cell)];
        }
    }
    return PLIM_OK;
}

static enum plim_status note_top_keys(struct plim_build *b, struct plim_value root,
                                      struct plim_err *err)
{
    const struct plim_box *box = plim__box_of(b, plim__cell_of(b, root));
    for (uint32_t i = 0; i + 1 < box->n; i += 2) {
        struct plim_value key = box->items[i];
        if (key.kind != PLIM_V_STR || key.u < PLIM_K_SEGMENTS || key.u > PLIM_K_PLIMSOLL) {
            PLIM_TRY(plim__build_unknown(b, key, err));
        }
    }
    return PLIM_OK;
}

static enum plim_status finish_dict(struct plim_build *b, struct plim_value root,
                                    struct plim_err *err)
{
    struct plim_value segments = plim__build_get(b, root, PLIM_K_SEGMENTS);
    struct plim_value traces = plim__build_get(b, root, PLIM_K_DEVICE_TRACES);
    PLIM_TRY(note_top_keys(b, root, err));
    PLIM_TRY(plim__build_heaps(b, segments, err));
    PLIM_TRY(plim__build_settings(b, plim__build_get(b, root, PLIM_K_ALLOCATOR_SETTINGS), err));
    PLIM_TRY(plim__build_host(b, plim__build_get(b, root, PLIM_K_HOST_SEGMENTS), err));
    PLIM_TRY(take_annotations(b, plim__build_get(b, root, PLIM_K_EXTERNAL_ANNOTATIONS), err));
    PLIM_TRY(plim__build_traces(b, traces, err));
    struct plim_value capture = plim__build_get(b, root, PLIM_K_PLIMSOLL);
    b->snap.capture = capture.kind == PLIM_V_STR ? (uint32_t)capture.u : PLIM_NO_ID;
    snprintf(b->snap.layout, sizeof(b->snap.layout), "%s", dict_layout(b->seen));
    return PLIM_OK;
}

static enum plim_status assemble(struct plim_build *b, struct plim_value root, struct plim_err *err)
{
    PLIM_TRY(refuse_cycles(b, root, 0, err));
    if (is_segment_list(b, root)) {
        PLIM_TRY(plim__build_heaps(b, root, err));
        snprintf(b->snap.layout, sizeof(b->snap.layout), "%s", list_layout(b->seen));
        return PLIM_OK;
    }
    if (has_key(b, root, PLIM_K_SEGMENTS) || has_key(b, root, PLIM_K_DEVICE_TRACES)) {
        return finish_dict(b, root, err);
    }
    return refuse_root(b, root, err);
}

enum plim_status plim__build_finish(struct plim_build *b, struct plim_value root,
                                    struct plim_snapshot *out, struct plim_err *err)
{
    PLIM_TRY(plim__build_settle(b, root, err));
    PLIM_TRY(assemble(b, root, err));
    if (b->snap.streams.n == 0) { /* none was named: everything lies on the default stream */
        PLIM_TRY(plim_vec_push(&b->snap.streams, err, 0));
    }
    *out = b->snap;
    b->snap = (struct plim_snapshot){0};
    return PLIM_OK;
}
