/* SPDX-License-Identifier: Apache-2.0 */

/* Samples of one page, sorted into ranks of models and turned into figures by the table of rows. */

#include "observe/engine_page.h"

#include "base/num.h"
#include "observe/printable.h"

#include <math.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum combine {
    COMBINE_SUM,
    COMBINE_MAX
};

struct row {
    enum plim_engine_kind kind;
    struct plim_str name, label, value;
    enum plim_engine_target target;
    enum combine combine;
    bool info; /* the number is the label's value */
};

/* The labels by which an engine tells its models and ranks apart. */
struct labels {
    struct plim_str model, rank;
};

#define METRIC(kind, name, label, value, target, combine)                                          \
    {PLIM_ENGINE_KIND_##kind,                                                                      \
     PLIM_STR(name),                                                                               \
     PLIM_STR(label),                                                                              \
     PLIM_STR(value),                                                                              \
     PLIM_ENGINE_TARGET_##target,                                                                  \
     COMBINE_##combine,                                                                            \
     false},
#define INFO(kind, name, label, target)                                                            \
    {PLIM_ENGINE_KIND_##kind,                                                                      \
     PLIM_STR(name),                                                                               \
     PLIM_STR(label),                                                                              \
     PLIM_STR(""),                                                                                 \
     PLIM_ENGINE_TARGET_##target,                                                                  \
     COMBINE_MAX,                                                                                  \
     true},
#define LABELS(kind, model, rank)
static const struct row rows[] = {
#include "observe/engine_rows.def"
};
#undef METRIC
#undef INFO
#undef LABELS

#define METRIC(...)
#define INFO(...)
#define LABELS(kind, model, rank) [PLIM_ENGINE_KIND_##kind] = {PLIM_STR(model), PLIM_STR(rank)},
static const struct labels labels[PLIM_ENGINE_KINDS] = {
#include "observe/engine_rows.def"
};
#undef METRIC
#undef INFO
#undef LABELS

_Static_assert(PLIM_ENGINE_FIGURES <= 64, "validity is one word");
_Static_assert((int)PLIM_ENGINE_TARGET_BLOCKS == (int)PLIM_ENGINE_FIGURES, "figures come first");

/* Which text, given the labels: "" when the engine has none. */
static struct plim_str label_of(const struct plim_engine_sample *sample, struct plim_str name)
{
    return name.n > 0 ? plim_engine_label(sample, name) : name;
}

/* The slot of this sample; NULL beyond the budget. */
static struct plim__engine_slot *slot_of(struct plim_engine_page *page, enum plim_engine_kind kind,
                                         const struct plim_engine_sample *sample)
{
    struct plim__engine_slot fresh = {.kind = kind};
    plim_printable(fresh.model, sizeof(fresh.model), label_of(sample, labels[kind].model));
    plim_printable(fresh.rank, sizeof(fresh.rank), label_of(sample, labels[kind].rank));
    plim_vec_foreach (slot, &page->slots) {
        if (slot->kind == kind && strcmp(slot->model, fresh.model) == 0 &&
            strcmp(slot->rank, fresh.rank) == 0) {
            return slot;
        }
    }
    if (page->slots.n == PLIM_ENGINE_PAGE_SLOTS ||
        plim_vec_push(&page->slots, NULL, fresh) != PLIM_OK) {
        return NULL;
    }
    return &page->slots.items[page->slots.n - 1];
}

/* Whether this very sample, name and labels, comes for the first time. */
static bool first_time(struct plim_engine_page *page, const struct plim_engine_sample *sample,
                       size_t row)
{
    uint64_t hash = XXH3_64bits_withSeed(sample->name.p, sample->name.n, row);
    for (size_t i = 0; i < sample->labels; i++) {
        const struct plim_engine_label *label = &sample->label[i];
        hash = XXH3_64bits_withSeed(label->name.p, label->name.n, hash);
        hash = XXH3_64bits_withSeed(label->value.p, label->value.n, hash);
    }
    hash -= hash == PLIM_MAP_NO_KEY;
    return plim_map_get(&page->seen, hash) == NULL && page->seen.n < PLIM_ENGINE_PAGE_SAMPLES &&
           plim_map_put(&page->seen, hash, 0, NULL) == PLIM_OK;
}

/* A label's value as a number; NaN when it is none ("None", "auto"). */
static double number_of(struct plim_str text)
{
    char word[32];
    char *end = word;
    if (text.n == 0 || text.n >= sizeof(word)) {
        return NAN;
    }
    memcpy(word, text.p, text.n);
    word[text.n] = '\0';
    double number = strtod(word, &end);
    return *end == '\0' ? number : NAN;
}

/* An earlier row of the same target wins over a later one; samples of one row are combined. */
static void set_target(struct plim__engine_slot *slot, size_t row, double value)
{
    enum plim_engine_target target = rows[row].target;
    uint16_t mark = (uint16_t)(row + 1);
    if (slot->row[target] == 0 || mark < slot->row[target]) {
        slot->row[target] = mark;
        slot->value[target] = value;
    } else if (mark == slot->row[target]) {
        double before = slot->value[target];
        slot->value[target] =
            rows[row].combine == COMBINE_SUM ? before + value : fmax(before, value);
    }
}

static void take_row(struct plim_engine_page *page, const struct plim_engine_sample *sample,
                     size_t i)
{
    const struct row *row = &rows[i];
    struct plim_str label = label_of(sample, row->label);
    double value = row->info ? number_of(label) : sample->value;
    bool wanted = row->info || plim_str_eq(label, row->value);
    if (!wanted || !isfinite(value) || value < 0) {
        return;
    }
    bool first = first_time(page, sample, i);
    struct plim__engine_slot *slot = first ? slot_of(page, row->kind, sample) : NULL;
    if (slot != NULL) {
        set_target(slot, i, value);
    } else {
        page->dropped++;
    }
}

static void take_sample(void *self, const struct plim_engine_sample *sample)
{
    struct plim_engine_page *page = self;
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        if (plim_str_eq(rows[i].name, sample->name)) {
            take_row(page, sample, i);
        }
    }
    if (sample->labels == 0 && plim_str_eq(sample->name, PLIM_STR("process_start_time_seconds")) &&
        isfinite(sample->value) && sample->value > 0) {
        page->process_start = sample->value;
    }
}

void plim_engine_page_init(struct plim_engine_page *page)
{
    plim_engine_text_init(&page->text, take_sample, page);
    plim_map_fini(&page->seen);
    page->slots.n = 0;
    page->process_start = 0;
    page->dropped = 0;
}

void plim_engine_page_fini(struct plim_engine_page *page)
{
    plim_map_fini(&page->seen);
    plim_vec_fini(&page->slots);
}

void plim_engine_page_feed(struct plim_engine_page *page, struct plim_str bytes)
{
    plim_engine_text_feed(&page->text, bytes);
}

/* ---- the end of a page ---- */

/* Whether what was said of `part` is said of `whole` too: it leaves out what `whole` names. */
static bool covers(const struct plim__engine_slot *part, const struct plim__engine_slot *whole)
{
    return part->kind == whole->kind &&
           (part->model[0] == '\0' || strcmp(part->model, whole->model) == 0) &&
           (part->rank[0] == '\0' || strcmp(part->rank, whole->rank) == 0);
}

static void merge_into(struct plim__engine_slot *to, const struct plim__engine_slot *from)
{
    for (size_t t = 0; t < PLIM_ENGINE_TARGETS; t++) {
        if (from->row[t] != 0 && (to->row[t] == 0 || from->row[t] < to->row[t])) {
            to->row[t] = from->row[t];
            to->value[t] = from->value[t];
        }
    }
}

/* Some metrics leave labels out that others have (vLLM's cache_config_info has no model): they join the one slot
 * that they can only mean. With several, what is said of all of them together stays apart. */
static void merge_slots(struct plim_engine_page *page)
{
    for (size_t i = 0; i < page->slots.n;) {
        struct plim__engine_slot *part = &page->slots.items[i], *whole = NULL;
        size_t found = 0;
        plim_vec_foreach (other, &page->slots) {
            if (other != part && covers(part, other)) {
                whole = other;
                found++;
            }
        }
        if (found == 1) {
            merge_into(whole, part);
            memmove(part, part + 1, (page->slots.n - i - 1) * sizeof(*part));
            page->slots.n--;
            i = 0;
        } else {
            i++;
        }
    }
}

static void set_figure(struct plim_engine_now *e, enum plim_engine_figure figure, double value)
{
    /* no figure of a server is larger; a sum or a product may be, or infinite */
    if (value <= PLIM_EXACT_MAX) {
        e->figure[figure] = value;
        e->valid |= UINT64_C(1) << figure;
    }
}

/* A share of the pool. Rounding may put it a little above 1; more than that is another unit, and left out. */
static void set_ratio(struct plim_engine_now *e, enum plim_engine_figure figure, double value)
{
    e->valid &= ~(UINT64_C(1) << figure);
    if (value <= 1.01) {
        set_figure(e, figure, fmin(value, 1));
    }
}

/* What follows from parts, where the engine does not say it itself. */
static void derive(const struct plim__engine_slot *slot, struct plim_engine_now *e)
{
#define HAS(name)   (slot->row[PLIM_ENGINE_TARGET_##name] != 0)
#define VALUE(name) (slot->value[PLIM_ENGINE_TARGET_##name])
    if (!HAS(KV_CAPACITY) && HAS(BLOCKS) && HAS(BLOCK_TOKENS)) {
        set_figure(e, PLIM_ENGINE_FIGURE_KV_CAPACITY, VALUE(BLOCKS) * VALUE(BLOCK_TOKENS));
    }
    bool sized = plim_engine_has(e, PLIM_ENGINE_FIGURE_KV_CAPACITY) &&
                 e->figure[PLIM_ENGINE_FIGURE_KV_CAPACITY] > 0;
    double capacity = e->figure[PLIM_ENGINE_FIGURE_KV_CAPACITY];
    /* vLLM's capacity is concurrency times length, less a fraction (v1/core/kv_cache_utils.py get_kv_cache_capacity):
     * from one request on, that is true of one whole number only. */
    if (!HAS(MAX_CONTEXT) && HAS(KV_CAPACITY) && HAS(CONCURRENCY) && VALUE(CONCURRENCY) >= 1) {
        double length = ceil(VALUE(KV_CAPACITY) / VALUE(CONCURRENCY) - 1e-6);
        set_figure(e, PLIM_ENGINE_FIGURE_MAX_CONTEXT, length);
    }
    if (HAS(KV_USAGE)) {
        set_ratio(e, PLIM_ENGINE_FIGURE_KV_USAGE, VALUE(KV_USAGE));
    } else if (sized && HAS(USED_TOKENS)) {
        set_ratio(e, PLIM_ENGINE_FIGURE_KV_USAGE, VALUE(USED_TOKENS) / capacity);
    } else if (HAS(USED_BLOCKS) && HAS(BLOCKS) && VALUE(BLOCKS) > 0) {
        set_ratio(e, PLIM_ENGINE_FIGURE_KV_USAGE, VALUE(USED_BLOCKS) / VALUE(BLOCKS));
    }
    if (sized && HAS(EVICTABLE_TOKENS)) {
        set_ratio(e, PLIM_ENGINE_FIGURE_KV_CACHED, VALUE(EVICTABLE_TOKENS) / capacity);
    }
    if (HAS(AWAKE)) {
        set_figure(e, PLIM_ENGINE_FIGURE_ASLEEP, VALUE(AWAKE) > 0 ? 0 : 1);
    }
#undef HAS
#undef VALUE
}

static struct plim_engine_now engine_of(const struct plim__engine_slot *slot)
{
    struct plim_engine_now e = {.kind = slot->kind};
    memcpy(e.model, slot->model, sizeof(e.model));
    memcpy(e.rank, slot->rank, sizeof(e.rank));
    for (size_t f = 0; f < PLIM_ENGINE_FIGURES; f++) {
        if (slot->row[f] != 0) {
            set_figure(&e, (enum plim_engine_figure)f, slot->value[f]);
        }
    }
    derive(slot, &e);
    return e;
}

enum plim_status plim_engine_page_end(struct plim_engine_page *page, bool whole,
                                      struct plim_engine_list *out, struct plim_err *err)
{
    plim_engine_text_end(&page->text, whole);
    merge_slots(page);
    PLIM_TRY(plim_vec_reserve(out, page->slots.n + 1, err));
    plim_vec_foreach (slot, &page->slots) {
        out->items[out->n++] = engine_of(slot);
    }
    if (page->slots.n == 0 && page->text.samples > 0) {
        out->items[out->n++] = (struct plim_engine_now){.kind = PLIM_ENGINE_KIND_UNKNOWN};
    }
    return PLIM_OK;
}

bool plim_engine_same(const struct plim_engine_now *a, const struct plim_engine_now *b)
{
    return a->kind == b->kind && strcmp(a->model, b->model) == 0 && strcmp(a->rank, b->rank) == 0;
}

bool plim_engine_restarted(const struct plim_engine_now *before, const struct plim_engine_now *now)
{
    enum {
        GAUGE,
        TOTAL
    };
#define PLIM__X(name, key, kind) kind,
    static const uint8_t kinds[] = {PLIM_ENGINE_FIGURE_MAP(PLIM__X)};
#undef PLIM__X
    uint64_t both = before->valid & now->valid;
    for (size_t f = 0; f < PLIM_ENGINE_FIGURES; f++) {
        if (kinds[f] == TOTAL && (both >> f & 1) != 0 && now->figure[f] < before->figure[f]) {
            return true;
        }
    }
    return false;
}
