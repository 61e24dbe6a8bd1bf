/* SPDX-License-Identifier: Apache-2.0 */
/* Matching of sites and segments of two snapshots; see diff.h. */

#include "diagnose/diff.h"

#include "base/bytes.h"
#include "base/num.h"

#include <stdlib.h>

/* Add the live bytes of one side's sites to the rows; `index` maps a site's key to its row. */
static enum plim_status add_side(const struct plim_snapshot *snapshot,
                                 const struct plim_diagnosis *side, bool later,
                                 struct plim_map *index, struct plim_diff *diff,
                                 struct plim_err *err)
{
    for (uint32_t i = 0; i < side->leaks.sites.n; i++) {
        const struct plim_site_live *live = &side->leaks.sites.items[i];
        const struct plim_site *site = &side->sites.sites.items[i];
        uint64_t *at = plim_map_get(index, site->key);
        if (live->blocks == 0) {
            continue;
        }
        uint64_t row = at ? *at : diff->rows.n;
        if (!at) {
            PLIM_TRY(plim_map_put(index, site->key, row, err));
            PLIM_TRY(plim_vec_push(
                &diff->rows, err,
                (struct plim_diff_row){.site = plim_site_text(snapshot, site, &diff->arena),
                                       .category = site->category,
                                       .site_b = PLIM_NO_ID}));
        }
        struct plim_diff_row *r = &diff->rows.items[row];
        *(later ? &r->bytes_b : &r->bytes_a) += live->bytes;
        *(later ? &r->blocks_b : &r->blocks_a) += live->blocks;
        r->site_b = later ? i : r->site_b;
    }
    return PLIM_OK;
}

/* Growth as a number that sorts: growing most first, shrinking most last. */
static int most_growth_first(const void *a, const void *b)
{
    const struct plim_diff_row *x = a, *y = b;
    int64_t gx = (int64_t)(x->bytes_b - x->bytes_a), gy = (int64_t)(y->bytes_b - y->bytes_a);
    return gx != gy ? (gx < gy) - (gx > gy) : strcmp(x->site, y->site);
}

static enum plim_status compare_segments(const struct plim_heap *a, const struct plim_heap *b,
                                         struct plim_diff_segments *out, struct plim_err *err)
{
    struct plim_map sizes = {0};
    enum plim_status st = PLIM_OK;
    for (size_t i = 0; st == PLIM_OK && i < a->segments.n; i++) {
        const struct plim_segment *s = &a->segments.items[i];
        st = plim_map_put(&sizes, s->addr >> 1, s->size, err); /* addresses are even */
    }
    for (size_t i = 0; st == PLIM_OK && i < b->segments.n; i++) {
        const struct plim_segment *s = &b->segments.items[i];
        const uint64_t *size = plim_map_get(&sizes, s->addr >> 1);
        bool kept = size && *size == s->size;
        *(kept ? &out->kept : &out->new_) += 1;
        *(kept ? &out->kept_bytes : &out->new_bytes) += s->size;
    }
    plim_map_fini(&sizes);
    out->gone = (uint32_t)plim_sub_sat(a->segments.n, out->kept);
    out->gone_bytes = plim_sub_sat(plim_totals_of_heap(a).reserved, out->kept_bytes);
    return st;
}

static const char *change_text(struct plim_arena *arena, uint64_t from, uint64_t to)
{
    char a[PLIM_BYTES_TEXT], b[PLIM_BYTES_TEXT], c[PLIM_BYTES_TEXT];
    if (from == to) {
        return plim_arena_sayf(arena, "%s (unchanged)", plim_bytes_format(a, from));
    }
    return plim_arena_sayf(arena, "%s to %s (%c%s)", plim_bytes_format(a, from),
                           plim_bytes_format(b, to), to >= from ? '+' : '-',
                           plim_bytes_format(c, to >= from ? to - from : from - to));
}

static const char *summarize(struct plim_diff *diff)
{
    const struct plim_ledger *a = &diff->a.set.ledger, *b = &diff->b.set.ledger;
    const char *live = change_text(&diff->arena, a->allocated.bytes, b->allocated.bytes);
    const char *reserved = change_text(&diff->arena, a->reserved.bytes, b->reserved.bytes);
    const char *stranded = change_text(&diff->arena, a->owner[PLIM_OWNER_STRANDED].bytes,
                                       b->owner[PLIM_OWNER_STRANDED].bytes);
    const struct plim_diff_row *top = diff->rows.n ? &diff->rows.items[0] : NULL;
    const char *who = top && top->bytes_b > top->bytes_a
                          ? plim_arena_sayf(&diff->arena, " Most growth: %s.", top->site)
                          : " No site grew.";
    return plim_arena_sayf(&diff->arena, "Live %s, reserved %s, stranded %s.%s", live, reserved,
                           stranded, who);
}

static enum plim_status compare(const struct plim_snapshot *a, const struct plim_snapshot *b,
                                const struct plim_diagnose_options *options, struct plim_diff *diff,
                                struct plim_err *err)
{
    struct plim_map index = {0};
    PLIM_TRY(plim_diagnose(a, options, &diff->a, err));
    PLIM_TRY(plim_diagnose(b, options, &diff->b, err));
    enum plim_status st = add_side(a, &diff->a, false, &index, diff, err);
    if (st == PLIM_OK) {
        st = add_side(b, &diff->b, true, &index, diff, err);
    }
    plim_map_fini(&index);
    PLIM_TRY(st);
    PLIM_TRY(compare_segments(&diff->a.heap, &diff->b.heap, &diff->segments, err));
    if (diff->rows.n > 0) {
        qsort(diff->rows.items, diff->rows.n, sizeof(diff->rows.items[0]), most_growth_first);
    }
    diff->summary = summarize(diff);
    return plim_arena_status(&diff->arena, err);
}

enum plim_status plim_diff(const struct plim_snapshot *a, const struct plim_snapshot *b,
                           const struct plim_diagnose_options *options, struct plim_diff *out,
                           struct plim_err *err)
{
    struct plim_diff diff = {0};
    plim_arena_init(&diff.arena, 0);
    enum plim_status st = compare(a, b, options, &diff, err);
    if (st != PLIM_OK) {
        plim_diff_fini(&diff);
        return st;
    }
    *out = diff;
    return PLIM_OK;
}

void plim_diff_fini(struct plim_diff *diff)
{
    plim_diagnosis_fini(&diff->a);
    plim_diagnosis_fini(&diff->b);
    plim_vec_fini(&diff->rows);
    plim_arena_fini(&diff->arena);
}
