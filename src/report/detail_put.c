/* SPDX-License-Identifier: Apache-2.0 */
/* Series, events, stacks and lifetimes as columns. The layout is docs/format/report-data.md. */

#include "report/detail.h"

#include "base/num.h"

#define MAX_TEXT 400u /* bytes of one name; longer ones lose their beginning */

static double bytes(uint64_t v)
{
    return (double)v;
}

static uint64_t time_at(const struct plim_trace *trace, size_t position)
{
    size_t n = trace->events.n;
    if (!trace->has_times || n == 0) {
        return 0;
    }
    uint64_t first = trace->events.items[0].time_us;
    uint64_t t = trace->events.items[position < n ? position : n - 1].time_us;
    return plim_sub_sat(t, first);
}

static void put_points(const struct plim_detail_series *series, const char *prefix,
                       struct plim_columns *c)
{
    size_t n = series->bins.n;
    double *live = plim_columns_f64(c, prefix, "live", n);
    double *rounding = plim_columns_f64(c, prefix, "rounding", n);
    double *stranded = plim_columns_f64(c, prefix, "stranded", n);
    double *releasable = plim_columns_f64(c, prefix, "releasable", n);
    double *private_ = plim_columns_f64(c, prefix, "private", n);
    double *least = plim_columns_f64(c, prefix, "least", n);
    if (!live || !rounding || !stranded || !releasable || !private_ || !least) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct plim_detail_bin *bin = &series->bins.items[i];
        live[i] = bytes(bin->top.live);
        rounding[i] = bytes(bin->top.rounding);
        stranded[i] = bytes(bin->top.stranded);
        releasable[i] = bytes(bin->top.releasable);
        private_[i] = bytes(bin->top.private_free);
        least[i] = bytes(bin->least);
    }
}

void plim_detail_put_series(const struct plim_detail *detail,
                            const struct plim_detail_series *series, const char *prefix,
                            struct plim_columns *c)
{
    size_t n = series->bins.n;
    uint32_t *range = plim_columns_u32(c, prefix, "range", 3);
    uint32_t *at = plim_columns_u32(c, prefix, "at", n);
    uint32_t *largest = plim_columns_u32(c, prefix, "largest", n);
    double *time = plim_columns_f64(c, prefix, "time", n);
    uint16_t *grow = plim_columns_u16(c, prefix, "grows", n);
    uint16_t *shrink = plim_columns_u16(c, prefix, "shrinks", n);
    uint16_t *ooms = plim_columns_u16(c, prefix, "ooms", n);
    uint16_t *retries = plim_columns_u16(c, prefix, "retries", n);
    put_points(series, prefix, c);
    if (!range || !at || !largest || !time || !grow || !shrink || !ooms || !retries) {
        return;
    }
    range[0] = series->from;
    range[1] = series->to;
    range[2] = series->width;
    for (size_t i = 0; i < n; i++) {
        const struct plim_detail_bin *bin = &series->bins.items[i];
        at[i] = bin->at;
        largest[i] = bin->largest;
        time[i] = (double)time_at(&detail->device->trace, bin->last > 0 ? bin->last - 1 : 0);
        grow[i] = bin->grows;
        shrink[i] = bin->shrinks;
        ooms[i] = bin->ooms;
        retries[i] = bin->retries;
    }
}

static void use_stack(struct plim_detail *detail, uint32_t stack)
{
    if (stack < detail->snapshot->stacks.stacks.n) {
        detail->used_stacks[stack] = 1;
    }
}

void plim_detail_put_events(struct plim_detail *detail, const uint32_t *events, size_t n,
                            struct plim_columns *c)
{
    uint32_t *index = plim_columns_u32(c, "ev", "index", n);
    uint8_t *action = plim_columns_u8(c, "ev", "action", n);
    double *addr = plim_columns_f64(c, "ev", "addr", n);
    double *size = plim_columns_f64(c, "ev", "size", n);
    double *time = plim_columns_f64(c, "ev", "time", n);
    uint32_t *stack = plim_columns_u32(c, "ev", "stack", n);
    uint16_t *stream = plim_columns_u16(c, "ev", "stream", n);
    uint16_t *pool = plim_columns_u16(c, "ev", "pool", n);
    uint32_t *note = plim_columns_u32(c, "ev", "note", n);
    if (!index || !action || !addr || !size || !time || !stack || !stream || !pool || !note) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct plim_event *e = &detail->device->trace.events.items[events[i]];
        index[i] = events[i];
        action[i] = e->action;
        addr[i] = bytes(e->addr);
        size[i] = bytes(e->size);
        time[i] = (double)time_at(&detail->device->trace, events[i]);
        stack[i] = e->stack;
        stream[i] = e->stream;
        pool[i] = e->pool;
        note[i] = e->note;
        use_stack(detail, e->stack);
    }
}

static uint32_t log2_of(uint64_t v)
{
    return v == 0 ? 0 : 63u - (uint32_t)__builtin_clzll(v);
}

void plim_detail_put_lifetimes(const struct plim_detail *detail, struct plim_columns *c)
{
    size_t n = (size_t)PLIM_LIFETIME_SIZES * PLIM_LIFETIME_AGES;
    uint32_t *number = plim_columns_u32(c, "lt", "count", n);
    double *sum = plim_columns_f64(c, "lt", "bytes", n);
    if (!number || !sum) {
        return;
    }
    for (uint32_t i = 0; i < detail->device->trace.events.n; i++) {
        const struct plim_event *e = &detail->device->trace.events.items[i];
        if (e->action != PLIM_ACTION_ALLOC) {
            continue;
        }
        uint32_t end = detail->lives.link[i];
        uint32_t age = end == 0 ? PLIM_LIFETIME_AGES - 1
                                : (uint32_t)plim_min_u64(log2_of(end - i), PLIM_LIFETIME_AGES - 2);
        uint32_t size = (uint32_t)plim_min_u64(log2_of(e->size), PLIM_LIFETIME_SIZES - 1);
        number[size * PLIM_LIFETIME_AGES + age]++;
        sum[size * PLIM_LIFETIME_AGES + age] += (double)e->size;
    }
}

/* ---- stacks: st.id, st.site, st.first; fr.*: frames; tx.*: texts ---- */

/* Names of the groups that a set of stacks goes to. */
struct stack_groups {
    const char *stacks, *frames, *texts;
};

struct texts {
    const struct plim_intern *strings;
    struct plim_map index; /* interned id -> text number */
    struct plim_buf bytes;
    PLIM_VEC(uint32_t) ends;
    size_t budget;
    uint64_t cut;
};

static enum plim_status add_text(struct texts *t, struct plim_str s, uint32_t *out,
                                 struct plim_err *err)
{
    s = s.n > MAX_TEXT ? plim_str_skip(s, s.n - MAX_TEXT) : s;
    if (t->bytes.n + s.n > t->budget) {
        t->cut++;
        *out = PLIM_NO_ID;
        return PLIM_OK;
    }
    plim_buf_add(&t->bytes, s);
    *out = (uint32_t)t->ends.n;
    return plim_vec_push(&t->ends, err, (uint32_t)t->bytes.n);
}

static enum plim_status text_number(struct texts *t, uint32_t id, uint32_t *out,
                                    struct plim_err *err)
{
    const uint64_t *known = id == PLIM_NO_ID ? NULL : plim_map_get(&t->index, id);
    if (known || id == PLIM_NO_ID) {
        *out = known ? (uint32_t)*known : PLIM_NO_ID;
        return PLIM_OK;
    }
    PLIM_TRY(add_text(t, plim_intern_str(t->strings, id), out, err));
    return plim_map_put(&t->index, id, *out, err);
}

struct stack_lists {
    PLIM_VEC(uint32_t) ids;    /* stacks */
    PLIM_VEC(uint32_t) first;  /* where the frames of each begin in `run` */
    PLIM_VEC(uint32_t) run;    /* frame numbers */
    PLIM_VEC(uint32_t) frames; /* frame number -> frame id */
    struct plim_map numbers;   /* frame id -> frame number */
};

static void lists_fini(struct stack_lists *l)
{
    plim_vec_fini(&l->ids);
    plim_vec_fini(&l->first);
    plim_vec_fini(&l->run);
    plim_vec_fini(&l->frames);
    plim_map_fini(&l->numbers);
}

static enum plim_status add_stack(const struct plim_detail *detail, uint32_t stack,
                                  struct stack_lists *l, struct plim_err *err)
{
    size_t n;
    const uint32_t *frames = plim_stacks_frames(&detail->snapshot->stacks, stack, &n);
    PLIM_TRY(plim_vec_push(&l->ids, err, stack));
    PLIM_TRY(plim_vec_push(&l->first, err, (uint32_t)l->run.n));
    for (size_t i = 0; i < n; i++) {
        const uint64_t *known = plim_map_get(&l->numbers, frames[i]);
        uint32_t number = known ? (uint32_t)*known : (uint32_t)l->frames.n;
        if (!known) {
            PLIM_TRY(plim_map_put(&l->numbers, frames[i], number, err));
            PLIM_TRY(plim_vec_push(&l->frames, err, frames[i]));
        }
        PLIM_TRY(plim_vec_push(&l->run, err, number));
    }
    return PLIM_OK;
}

static void put_u32s(struct plim_columns *c, const char *prefix, const char *name,
                     const uint32_t *values, size_t n)
{
    uint32_t *to = plim_columns_u32(c, prefix, name, n);
    for (size_t i = 0; to && i < n; i++) {
        to[i] = values[i];
    }
}

static enum plim_status put_frames(const struct plim_detail *detail, const struct stack_lists *l,
                                   const char *group, struct texts *t, struct plim_columns *c,
                                   struct plim_err *err)
{
    size_t n = l->frames.n;
    uint32_t *name = plim_columns_u32(c, group, "name", n);
    uint32_t *file = plim_columns_u32(c, group, "file", n);
    uint32_t *line = plim_columns_u32(c, group, "line", n);
    for (size_t i = 0; name && file && line && i < n; i++) {
        const struct plim_frame *f = &detail->snapshot->stacks.frames.items[l->frames.items[i]];
        PLIM_TRY(text_number(t, f->name, &name[i], err));
        PLIM_TRY(text_number(t, f->file, &file[i], err));
        line[i] = f->line;
    }
    return PLIM_OK;
}

/* The text of each site, once, for people. */
static enum plim_status put_labels(const struct plim_detail *detail, const char *group,
                                   const uint32_t *site, size_t n, struct texts *t,
                                   struct plim_columns *c, struct plim_err *err)
{
    const struct plim_sites *sites = &detail->diagnosis->sites;
    struct plim_map known = {0};
    struct plim_arena arena;
    enum plim_status st = PLIM_OK;
    uint32_t *label = plim_columns_u32(c, group, "label", n);
    plim_arena_init(&arena, 0);
    for (size_t i = 0; st == PLIM_OK && label && i < n; i++) {
        const uint64_t *number = plim_map_get(&known, site[i]);
        if (number) {
            label[i] = (uint32_t)*number;
            continue;
        }
        const char *text = plim_site_text(detail->snapshot, &sites->sites.items[site[i]], &arena);
        st = add_text(t, plim_str_from(text), &label[i], err);
        if (st == PLIM_OK) {
            st = plim_map_put(&known, site[i], label[i], err);
        }
    }
    plim_map_fini(&known);
    plim_arena_fini(&arena);
    return st;
}

static enum plim_status put_lists(const struct plim_detail *detail, const struct stack_lists *l,
                                  const struct stack_groups *groups, struct texts *t,
                                  struct plim_columns *c, struct plim_err *err)
{
    const struct plim_sites *sites = &detail->diagnosis->sites;
    put_u32s(c, groups->stacks, "id", l->ids.items, l->ids.n);
    put_u32s(c, groups->stacks, "first", l->first.items, l->first.n);
    put_u32s(c, groups->stacks, "run", l->run.items, l->run.n);
    uint32_t *site = plim_columns_u32(c, groups->stacks, "site", l->ids.n);
    uint8_t *category = plim_columns_u8(c, groups->stacks, "category", l->ids.n);
    for (size_t i = 0; site && category && i < l->ids.n; i++) {
        site[i] = plim_site_of(sites, l->ids.items[i]);
        category[i] = (uint8_t)sites->sites.items[site[i]].category;
    }
    if (site) {
        PLIM_TRY(put_labels(detail, groups->stacks, site, l->ids.n, t, c, err));
    }
    PLIM_TRY(put_frames(detail, l, groups->frames, t, c, err));
    put_u32s(c, groups->texts, "ends", t->ends.items, t->ends.n);
    plim_columns_bytes(c, groups->texts, "bytes", plim_buf_str(&t->bytes));
    return plim_buf_status(&t->bytes, err);
}

static enum plim_status put_stacks(const struct plim_detail *detail, size_t text_budget,
                                   const struct stack_groups *groups, struct plim_columns *columns,
                                   struct plim_detail_chosen *chosen, struct plim_err *err)
{
    struct stack_lists lists = {0};
    struct texts texts = {.strings = &detail->snapshot->strings, .budget = text_budget};
    enum plim_status st = PLIM_OK;
    for (size_t i = 0; st == PLIM_OK && i < detail->snapshot->stacks.stacks.n; i++) {
        if (detail->used_stacks[i]) {
            st = add_stack(detail, (uint32_t)i, &lists, err);
        }
    }
    if (st == PLIM_OK) {
        st = put_lists(detail, &lists, groups, &texts, columns, err);
    }
    chosen->frames_cut += texts.cut;
    lists_fini(&lists);
    plim_map_fini(&texts.index);
    plim_buf_fini(&texts.bytes);
    plim_vec_fini(&texts.ends);
    return st;
}

enum plim_status plim_detail_put_stacks(const struct plim_detail *detail, size_t text_budget,
                                        struct plim_columns *columns,
                                        struct plim_detail_chosen *chosen, struct plim_err *err)
{
    static const struct stack_groups groups = {"st", "fr", "tx"};
    return put_stacks(detail, text_budget, &groups, columns, chosen, err);
}

/* ---- an earlier snapshot: live bytes by stack ---- */

/* Sums of the live blocks by stack into [stacks + 1]; the last is for blocks without a stack. */
static void sum_by_stack(const struct plim_heap *heap, size_t stacks, uint64_t *bytes,
                         uint32_t *blocks)
{
    plim_vec_foreach (b, &heap->blocks) {
        if (plim_block_is_live(b)) {
            size_t i = b->stack < stacks ? b->stack : stacks;
            bytes[i] += b->size;
            blocks[i]++;
        }
    }
}

static void put_sums(struct plim_columns *columns, size_t stacks, const uint64_t *bytes,
                     const uint32_t *blocks, uint8_t *used)
{
    size_t n = 0, row = 0;
    for (size_t i = 0; i <= stacks; i++) {
        n += blocks[i] > 0;
    }
    uint32_t *stack = plim_columns_u32(columns, "bf", "stack", n);
    double *sum = plim_columns_f64(columns, "bf", "bytes", n);
    uint32_t *count = plim_columns_u32(columns, "bf", "blocks", n);
    for (size_t i = 0; stack && sum && count && i <= stacks; i++) {
        if (blocks[i] > 0) {
            stack[row] = i < stacks ? (uint32_t)i : PLIM_NO_STACK;
            sum[row] = (double)bytes[i];
            count[row++] = blocks[i];
            used[i] = 1;
        }
    }
}

enum plim_status plim_detail_put_before(const struct plim_detail_before *before, size_t text_budget,
                                        struct plim_columns *columns,
                                        struct plim_detail_chosen *chosen, struct plim_err *err)
{
    static const struct stack_groups groups = {"bst", "bfr", "btx"};
    size_t stacks = before->snapshot->stacks.stacks.n;
    uint64_t *bytes = calloc(stacks + 1, sizeof(*bytes));
    uint32_t *blocks = calloc(stacks + 1, sizeof(*blocks));
    struct plim_detail detail = {.snapshot = before->snapshot,
                                 .diagnosis = before->diagnosis,
                                 .used_stacks = calloc(stacks + 1, 1)};
    enum plim_status st = bytes && blocks && detail.used_stacks
                              ? PLIM_OK
                              : plim__fail(err, PLIM_E_NOMEM, "no memory for the earlier snapshot");
    if (st == PLIM_OK) {
        sum_by_stack(&before->diagnosis->heap, stacks, bytes, blocks);
        put_sums(columns, stacks, bytes, blocks, detail.used_stacks);
        st = put_stacks(&detail, text_budget, &groups, columns, chosen, err);
    }
    free(bytes);
    free(blocks);
    free(detail.used_stacks);
    return st;
}
