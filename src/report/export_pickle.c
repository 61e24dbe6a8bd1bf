/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot as the pickle that PyTorch writes. Texts, frames and stacks are written once and then referred to
 * through the memo, which keeps the file as small as the original.
 * Opcodes: Python's pickletools, protocol 4. Frames of the protocol (FRAME) are optional and left out.
 */

#include "report/export.h"

#include "base/num.h"
#include "heap/moment.h"
#include "heap/totals.h"

#include <inttypes.h>
#include <stdio.h>

#define OP_PROTO    "\x80\x04"
#define OP_MARK     '('
#define OP_DICT     '}'
#define OP_LIST     ']'
#define OP_SETITEMS 'u'
#define OP_APPENDS  'e'
#define OP_MEMOIZE  '\x94'
#define OP_BINGET   'h'
#define OP_LONGGET  'j'
#define OP_TRUE     '\x88'
#define OP_FALSE    '\x89'
#define OP_TUPLE2   '\x86'
#define OP_FLOAT    'G'
#define OP_INT1     'K'
#define OP_INT2     'M'
#define OP_INT4     'J'
#define OP_LONG1    '\x8a'
#define OP_TEXT1    '\x8c' /* one byte of length */
#define OP_TEXT4    'X'    /* four */
#define OP_STOP     '.'

struct pickler {
    struct plim_buf *out;
    const struct plim_snapshot *s;
    struct plim_map texts;  /* interned id -> memo number */
    struct plim_map frames; /* frame id -> memo number */
    struct plim_map stacks; /* stack id -> memo number */
    struct plim_map keys;   /* address of a static text -> memo number */
    uint32_t memo;          /* numbers given out */
    struct plim_err *err;
    enum plim_status st; /* of the maps; sticky */
};

static void op(struct pickler *p, char c)
{
    plim_buf_char(p->out, c);
}

static void le(struct pickler *p, uint64_t v, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        plim_buf_char(p->out, (char)(v >> (8 * i)));
    }
}

/* Two's complement in as few bytes as keep the sign. */
static void put_long(struct pickler *p, uint64_t v, bool negative)
{
    uint64_t fill = negative ? 0xff : 0;
    unsigned n = 8;
    while (n > 1 && ((v >> (8 * (n - 1))) & 0xff) == fill &&
           ((v >> (8 * n - 9)) & 1) == (fill & 1)) {
        n--;
    }
    bool extra = n == 8 && !negative && (v >> 63);
    op(p, OP_LONG1);
    op(p, (char)(n + extra));
    le(p, v, n);
    if (extra) {
        op(p, '\0');
    }
}

static void put_u64(struct pickler *p, uint64_t v)
{
    if (v <= 0xff) {
        op(p, OP_INT1);
        le(p, v, 1);
    } else if (v <= 0xffff) {
        op(p, OP_INT2);
        le(p, v, 2);
    } else if (v <= INT32_MAX) {
        op(p, OP_INT4);
        le(p, v, 4);
    } else {
        put_long(p, v, false);
    }
}

static void put_i64(struct pickler *p, int64_t v)
{
    if (v >= 0) {
        put_u64(p, (uint64_t)v);
    } else if (v >= INT32_MIN) {
        op(p, OP_INT4);
        le(p, (uint64_t)v, 4);
    } else {
        put_long(p, (uint64_t)v, true);
    }
}

static void put_bool(struct pickler *p, bool v)
{
    op(p, v ? OP_TRUE : OP_FALSE);
}

static void put_float(struct pickler *p, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    op(p, OP_FLOAT);
    for (unsigned i = 8; i-- > 0;) {
        plim_buf_char(p->out, (char)(bits >> (8 * i)));
    }
}

/* Bytes that are not UTF-8 would make the file unreadable: they become question marks. */
static size_t good_utf8(const unsigned char *t, size_t n)
{
    size_t len = t[0] < 0x80                   ? 1
                 : t[0] >= 0xc2 && t[0] < 0xe0 ? 2
                 : t[0] >= 0xe0 && t[0] < 0xf0 ? 3
                 : t[0] >= 0xf0 && t[0] < 0xf5 ? 4
                                               : 0;
    if (len == 0 || len > n) {
        return 0;
    }
    for (size_t i = 1; i < len; i++) {
        if ((t[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (t[0] == 0xe0 && t[1] < 0xa0) || (t[0] == 0xf0 && t[1] < 0x90);
    bool outside = (t[0] == 0xed && t[1] > 0x9f) || (t[0] == 0xf4 && t[1] > 0x8f);
    return overlong || outside ? 0 : len;
}

static void put_text(struct pickler *p, struct plim_str s)
{
    s.n = s.n > UINT32_MAX ? UINT32_MAX : s.n;
    op(p, s.n <= 0xff ? OP_TEXT1 : OP_TEXT4);
    le(p, s.n, s.n <= 0xff ? 1 : 4);
    for (size_t i = 0; i < s.n;) {
        size_t good = good_utf8((const unsigned char *)s.p + i, s.n - i);
        plim_buf_add(p->out, good ? (struct plim_str){s.p + i, good} : PLIM_STR("?"));
        i += good ? good : 1;
    }
}

static void put_get(struct pickler *p, uint64_t memo)
{
    op(p, memo <= 0xff ? OP_BINGET : OP_LONGGET);
    le(p, memo, memo <= 0xff ? 1 : 4);
}

/* Write a reference when the map knows the key; else note that the next thing has the next number. */
static bool known(struct pickler *p, struct plim_map *map, uint64_t key)
{
    const uint64_t *memo = plim_map_get(map, key);
    if (memo) {
        put_get(p, *memo);
    }
    return memo != NULL;
}

static void memoize(struct pickler *p, struct plim_map *map, uint64_t key)
{
    op(p, OP_MEMOIZE);
    if (p->st == PLIM_OK) {
        p->st = plim_map_put(map, key, p->memo, p->err);
    }
    p->memo++;
}

/* A key, or another text of the program: known by its address. */
static void put_key(struct pickler *p, const char *text)
{
    uint64_t key = (uint64_t)(uintptr_t)text;
    if (!known(p, &p->keys, key)) {
        put_text(p, plim_str_from(text));
        memoize(p, &p->keys, key);
    }
}

static void put_interned(struct pickler *p, uint32_t id)
{
    if (!known(p, &p->texts, id)) {
        put_text(p, plim_intern_str(&p->s->strings, id));
        memoize(p, &p->texts, id);
    }
}

static void key_u64(struct pickler *p, const char *key, uint64_t v)
{
    put_key(p, key);
    put_u64(p, v);
}

static void put_frame(struct pickler *p, uint32_t id)
{
    const struct plim_frame *f = &p->s->stacks.frames.items[id];
    if (known(p, &p->frames, id)) {
        return;
    }
    op(p, OP_DICT);
    memoize(p, &p->frames, id);
    op(p, OP_MARK);
    put_key(p, "name");
    put_interned(p, f->name);
    put_key(p, "filename");
    put_interned(p, f->file);
    key_u64(p, "line", f->line);
    op(p, OP_SETITEMS);
}

static void put_stack(struct pickler *p, uint32_t stack)
{
    size_t n;
    const uint32_t *frames = plim_stacks_frames(&p->s->stacks, stack, &n);
    put_key(p, "frames");
    if (known(p, &p->stacks, stack)) {
        return;
    }
    op(p, OP_LIST);
    memoize(p, &p->stacks, stack);
    if (n > 0) {
        op(p, OP_MARK);
        for (size_t i = 0; i < n; i++) {
            put_frame(p, frames[i]);
        }
        op(p, OP_APPENDS);
    }
}

static void put_pool(struct pickler *p, const char *key, uint16_t pool)
{
    struct plim_pool_id id = p->s->pools.items[pool];
    put_key(p, key);
    put_u64(p, id.a);
    put_u64(p, id.b);
    op(p, OP_TUPLE2);
}

static void put_block(struct pickler *p, const struct plim_block *b)
{
    static const char *const states[] = {"inactive", "active_allocated", "active_pending_free"};
    op(p, OP_DICT);
    op(p, OP_MARK);
    key_u64(p, "address", b->addr);
    key_u64(p, "size", b->size);
    key_u64(p, "requested_size", b->requested);
    put_key(p, "state");
    put_key(p, states[b->state]);
    if (b->stack != PLIM_NO_STACK) {
        put_stack(p, b->stack);
    }
    op(p, OP_SETITEMS);
}

static void put_blocks(struct pickler *p, const struct plim_heap *heap,
                       const struct plim_segment *s)
{
    put_key(p, "blocks");
    op(p, OP_LIST);
    op(p, OP_MARK);
    for (uint32_t i = 0; i < s->n_blocks; i++) {
        put_block(p, &heap->blocks.items[s->first_block + i]);
    }
    op(p, OP_APPENDS);
}

static void put_segment(struct pickler *p, uint64_t device, const struct plim_heap *heap,
                        const struct plim_segment *s)
{
    struct plim_heap_totals sums = {0};
    plim_totals_add_segment(&sums, heap, s);
    op(p, OP_DICT);
    op(p, OP_MARK);
    key_u64(p, "device", device);
    key_u64(p, "address", s->addr);
    key_u64(p, "total_size", s->size);
    key_u64(p, "allocated_size", sums.allocated);
    key_u64(p, "active_size", sums.allocated + sums.pending);
    key_u64(p, "requested_size", sums.requested);
    put_key(p, "stream");
    put_i64(p, p->s->streams.items[s->stream]);
    put_key(p, "segment_type");
    put_key(p, s->small ? "small" : "large");
    put_pool(p, "segment_pool_id", s->pool);
    put_key(p, "is_expandable");
    put_bool(p, s->expandable);
    put_stack(p, s->stack == PLIM_NO_STACK ? PLIM_STACK_EMPTY : s->stack);
    put_blocks(p, heap, s);
    op(p, OP_SETITEMS);
}

static void put_note(struct pickler *p, uint32_t note)
{
    if (note >= p->s->notes.n) {
        return;
    }
    if (p->s->notes.items[note].compile_context != PLIM_NO_ID) {
        put_key(p, "compile_context");
        put_interned(p, p->s->notes.items[note].compile_context);
    }
    if (p->s->notes.items[note].user_metadata != PLIM_NO_ID) {
        put_key(p, "user_metadata");
        put_interned(p, p->s->notes.items[note].user_metadata);
    }
}

static void put_event(struct pickler *p, const struct plim_event *e, bool has_times)
{
    op(p, OP_DICT);
    op(p, OP_MARK);
    put_key(p, "action");
    put_key(p, plim_action_text((enum plim_action)e->action));
    key_u64(p, e->action == PLIM_ACTION_OOM ? "device_free" : "addr", e->addr);
    key_u64(p, "size", e->size);
    put_key(p, "stream");
    put_i64(p, p->s->streams.n > e->stream ? p->s->streams.items[e->stream] : 0);
    if (has_times) {
        key_u64(p, "time_us", e->time_us);
    }
    put_note(p, e->note);
    if (e->pool != PLIM_NO_POOL) {
        put_pool(p, "pool_id", e->pool);
    }
    if (e->stack != PLIM_NO_STACK) {
        put_stack(p, e->stack);
    }
    op(p, OP_SETITEMS);
}

static void put_trace(struct pickler *p, const struct plim_trace *trace, size_t from, size_t until)
{
    op(p, OP_LIST);
    op(p, OP_MARK);
    for (size_t i = from; i < until; i++) {
        put_event(p, &trace->events.items[i], trace->has_times);
    }
    op(p, OP_APPENDS);
}

static void put_heap(struct pickler *p, uint64_t device, const struct plim_heap *heap)
{
    plim_vec_foreach (s, &heap->segments) {
        put_segment(p, device, heap, s);
    }
}

static enum plim_status put_segments(struct pickler *p, const struct plim_export_window *window,
                                     struct plim_err *err)
{
    put_key(p, "segments");
    op(p, OP_LIST);
    op(p, OP_MARK);
    for (uint32_t d = 0; d < p->s->devices.n; d++) {
        const struct plim_device *device = &p->s->devices.items[d];
        struct plim_heap heap;
        if (window->device == PLIM_NO_ID ||
            (window->device == d && window->until == device->trace.events.n)) {
            put_heap(p, d, &device->heap);
        } else if (window->device == d) {
            PLIM_TRY(plim_heap_at(device, window->until, NULL, &heap, NULL, err));
            put_heap(p, d, &heap);
            plim_heap_fini(&heap);
        }
    }
    op(p, OP_APPENDS);
    return PLIM_OK;
}

static void put_traces(struct pickler *p, const struct plim_export_window *window)
{
    put_key(p, "device_traces");
    op(p, OP_LIST);
    op(p, OP_MARK);
    for (uint32_t d = 0; d < p->s->devices.n; d++) {
        const struct plim_trace *trace = &p->s->devices.items[d].trace;
        if (window->device == PLIM_NO_ID) {
            put_trace(p, trace, 0, trace->events.n);
        } else if (window->device == d) {
            put_trace(p, trace, window->from, window->until);
        } else {
            put_trace(p, trace, 0, 0);
        }
    }
    op(p, OP_APPENDS);
}

static void put_roundup(struct pickler *p, const struct plim_settings *s)
{
    put_key(p, "roundup_power2_divisions");
    op(p, OP_DICT);
    op(p, OP_MARK);
    for (unsigned i = 0; i < 16; i++) {
        char text[24];
        (void)snprintf(text, sizeof(text), "%" PRIu64, UINT64_C(1) << i);
        put_text(p, plim_str_from(text));
        put_u64(p, s->roundup[i]);
    }
    op(p, OP_SETITEMS);
}

static void put_settings(struct pickler *p)
{
    const struct plim_settings *s = &p->s->settings;
    put_key(p, "allocator_settings");
    op(p, OP_DICT);
    op(p, OP_MARK);
    if (s->conf != PLIM_NO_ID) {
        put_key(p, "PYTORCH_CUDA_ALLOC_CONF");
        put_interned(p, s->conf);
    }
    put_key(p, "max_split_size");
    put_i64(p, s->max_split_size > INT64_MAX ? -1 : (int64_t)s->max_split_size);
    put_key(p, "garbage_collection_threshold");
    put_float(p, s->gc_threshold);
    put_key(p, "expandable_segments");
    put_bool(p, s->expandable_segments);
    if (s->has_roundup) {
        put_roundup(p, s);
    }
    op(p, OP_SETITEMS);
}

static void put_annotations(struct pickler *p)
{
    put_key(p, "external_annotations");
    op(p, OP_LIST);
    op(p, OP_MARK);
    plim_vec_foreach (a, &p->s->annotations) {
        op(p, OP_DICT);
        op(p, OP_MARK);
        put_key(p, "stage");
        put_key(p, a->end ? "END" : "START");
        put_key(p, "name");
        put_interned(p, a->name);
        key_u64(p, "device", a->device);
        key_u64(p, "time_us", a->time_us);
        op(p, OP_SETITEMS);
    }
    op(p, OP_APPENDS);
}

static enum plim_status put_all(struct pickler *p, const struct plim_export_window *window,
                                struct plim_err *err)
{
    plim_buf_add(p->out, PLIM_STR(OP_PROTO));
    op(p, OP_DICT);
    op(p, OP_MARK);
    PLIM_TRY(put_segments(p, window, err));
    if (p->s->has_traces) {
        put_traces(p, window);
    }
    if (p->s->settings.known) {
        put_settings(p);
    }
    if (p->s->annotations.n > 0) {
        put_annotations(p);
    }
    if (p->s->capture != PLIM_NO_ID) {
        put_key(p, "plimsoll");
        put_interned(p, p->s->capture);
    }
    op(p, OP_SETITEMS);
    op(p, OP_STOP);
    PLIM_TRY(p->st);
    return plim_buf_status(p->out, err);
}

enum plim_status plim_export_check(const struct plim_snapshot *snapshot,
                                   const struct plim_export_window *window,
                                   struct plim_export_window *out, struct plim_err *err)
{
    struct plim_export_window w = *window;
    if (w.device != PLIM_NO_ID) {
        if (w.device >= snapshot->devices.n) {
            return plim__fail(err, PLIM_E_RANGE, "there is no device %u", w.device);
        }
        size_t n = snapshot->devices.items[w.device].trace.events.n;
        w.until = w.until == SIZE_MAX ? n : w.until;
        if (w.until > n || w.from > w.until) {
            return plim__fail(err, PLIM_E_RANGE, "no events from %zu to %zu: the trace has %zu",
                              w.from, w.until, n);
        }
    }
    *out = w;
    return PLIM_OK;
}

enum plim_status plim_export_pickle(struct plim_buf *out, const struct plim_snapshot *snapshot,
                                    const struct plim_export_window *window, struct plim_err *err)
{
    struct plim_export_window w;
    struct pickler p = {.out = out, .s = snapshot, .err = err};
    PLIM_TRY(plim_export_check(snapshot, window, &w, err));
    enum plim_status st = put_all(&p, &w, err);
    plim_map_fini(&p.texts);
    plim_map_fini(&p.frames);
    plim_map_fini(&p.stacks);
    plim_map_fini(&p.keys);
    return st;
}
