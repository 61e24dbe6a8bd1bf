/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The KV cache as vLLM plans it: specs of the layers, block sizes, groups, blocks.
 *
 * Layers with one spec form one group. Layers of several kinds are given equal pages (smaller ones get larger
 * blocks, or padding) and split into groups of equal size that draw block ids from one pool; a block holds a
 * page of each layer of a group. One block is never used: it stands for "no block".
 * Source: v1/core/kv_cache_planning.py (get_kv_cache_groups, _get_kv_cache_groups_uniform_page_size,
 * unify_kv_cache_spec_page_size), v1/kv_cache_interface.py, platforms/interface.py
 * (update_block_size_for_backend, _align_hybrid_block_size).
 */

#include "serving/vllm_run.h"

/* Layers that share a spec. */
struct bucket {
    enum plim_kv_kind kind;
    enum plim_mixer mixer;
    uint32_t layers;
    uint32_t window;
    uint32_t block;
    uint64_t token_bytes, page, padded;
    uint64_t encoder; /* tokens of cross attention */
};

struct buckets {
    struct bucket *items; /* arena, [n] */
    size_t n;
};

/* Attention keeps pages by blocks of tokens; states keep one page each. */
static bool by_tokens(const struct bucket *b)
{
    return b->kind != PLIM_KV_STATE;
}

bool plim__prefill_checkpoints(const struct plim_vllm_settings *set, const struct plim_card *card,
                               enum plim_mixer mixer)
{
    return set->prefix_caching &&
           (mixer == PLIM_MIXER_MAMBA2 || (mixer == PLIM_MIXER_GATED_DELTA && card->cc == 90));
}

/* ---- blocks that a request needs ------------------------------------------------------------------ */

static uint64_t state_blocks(const struct plim_vllm_settings *set, const struct plim_card *card,
                             enum plim_mixer mixer)
{
    if (!set->prefix_caching) {
        return 1;
    }
    return 2 + plim__prefill_checkpoints(set, card, mixer);
}

static uint64_t blocks_of(const struct plim_vllm_group *g, const struct plim_vllm_settings *set,
                          uint64_t length)
{
    switch (g->kind) {
    case PLIM_KV_STATE:
    case PLIM_KV_CROSS:
        return g->request_blocks; /* whatever the length */
    case PLIM_KV_SLIDING:
        return plim_ceil_div(plim_min_u64(g->window - 1 + set->in_flight_tokens, length),
                             g->block_size) +
               1;
    case PLIM_KV_CHUNKED:
        return plim_ceil_div(plim_min_u64(g->window + set->in_flight_tokens, length),
                             g->block_size);
    default:
        return plim_ceil_div(plim_ceil_div(length, set->at.dcp), g->block_size);
    }
}

uint64_t plim__blocks_for(const struct plim_vllm_start *s, uint64_t length)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->n_groups; i++) {
        sum += blocks_of(&s->groups[i], &s->settings, length);
    }
    return sum;
}

/* The longest request whose blocks fit, by bisection as the engine does; 0 when none does. */
static uint64_t longest(const struct plim_vllm_start *s, uint64_t blocks, uint64_t most)
{
    uint64_t left = 1, right = most, best = 0;
    while (left <= right && right != 0) {
        uint64_t middle = left + (right - left) / 2;
        if (plim__blocks_for(s, middle) <= blocks) {
            best = middle;
            left = middle + 1;
        } else {
            right = middle - 1;
        }
    }
    return best;
}

/* ---- block sizes ----------------------------------------------------------------------------------- */

/* Whether some layer has heads of 256: FlashAttention 4 has a kernel of its own for these. */
static bool wide_heads(const struct plim_geometry *g)
{
    for (uint32_t i = 0; i < g->n_layers; i++) {
        const struct plim_layer *l = &g->layers[i];
        if (plim_layer_is_attention(l) && l->head_dim == 256 && l->v_head_dim == 256) {
            return true;
        }
    }
    return false;
}

/* Smallest block that the attention kernels take. */
static uint32_t kernel_block(const struct plim_vllm_settings *set, const struct plim_card *card,
                             const struct plim_geometry *g, bool mla)
{
    bool fp8 = set->kv.k == PLIM_KV_FORMAT_FP8 || set->kv.k == PLIM_KV_FORMAT_FP8_E4M3 ||
               set->kv.k == PLIM_KV_FORMAT_FP8_DS_MLA;
    if (mla && card->cc / 10 == 9 && fp8) {
        return 64; /* FlashMLA */
    }
    if (mla && card->cc / 10 == 10) {
        return 128; /* CUTLASS MLA */
    }
    if (card->cc / 10 == 10 && wide_heads(g)) {
        return 128; /* v1/attention/backends/fa_utils.py FA4_HD256_PAGE_SIZE */
    }
    return 16;
}

/* Recurrent layers beside attention: the attention page must hold a state. */
static uint32_t hybrid_block(const struct plim_vllm_settings *set, const struct plim_card *card,
                             const struct plim_geometry *g, const struct buckets *all, bool mla)
{
    uint32_t block = set->block_size;
    uint64_t state = 0, token = 0;
    uint64_t align = plim_max_u64(kernel_block(set, card, g, mla), block);
    for (size_t i = 0; i < all->n; i++) {
        const struct bucket *b = &all->items[i];
        if (b->kind == PLIM_KV_STATE) {
            state = plim_max_u64(state, b->page);
            if (b->mixer == PLIM_MIXER_GATED_DELTA &&
                plim__prefill_checkpoints(set, card, b->mixer)) {
                align = plim_round_up(align, 64);
            }
        } else {
            token = plim_max_u64(token, b->token_bytes);
        }
    }
    if (mla) {
        align = plim_max_u64(align, 128);
    }
    if (state == 0 || token == 0) {
        return block;
    }
    uint64_t needed = plim_mul_sat(align, plim_ceil_div(state, plim_mul_sat(align, token)));
    return (uint32_t)plim_max_u64(block, plim_min_u64(needed, UINT32_MAX));
}

/* ---- buckets ----------------------------------------------------------------------------------------- */

static void add_layer(struct buckets *all, const struct plim_kv_layer *l,
                      const struct plim_geometry *g)
{
    for (size_t i = 0; i < all->n; i++) {
        struct bucket *b = &all->items[i];
        if (b->kind == l->kind && b->window == l->window && b->token_bytes == l->token_bytes &&
            (by_tokens(b) || b->page == l->state_bytes)) {
            b->layers++;
            return;
        }
    }
    all->items[all->n++] = (struct bucket){
        .kind = l->kind,
        .mixer = l->mixer,
        .layers = 1,
        .window = l->window,
        .token_bytes = l->token_bytes,
        .page = l->kind == PLIM_KV_STATE ? l->state_bytes : 0,
        .encoder = g->cross_tokens,
    };
}

static enum plim_status gather(struct plim_arena *arena, const struct plim_geometry *g,
                               const struct plim_vllm_settings *set, struct buckets *all,
                               struct plim_err *err)
{
    struct plim_kv_list list;
    PLIM_TRY(plim_kv_layers(arena, g, &set->at, &set->kv, &list, err));
    void *items;
    PLIM_TRY(plim_arena_array(arena, list.n + 1, sizeof(struct bucket), &items, err));
    *all = (struct buckets){items, 0};
    for (size_t i = 0; i < list.n; i++) {
        if (!list.items[i].mtp) {
            add_layer(all, &list.items[i], g);
        }
    }
    return PLIM_OK;
}

/* Pages in bytes from the block size; recurrent states are padded to the attention page. */
static void size_pages(struct buckets *all, uint32_t block)
{
    uint64_t widest = 0;
    for (size_t i = 0; i < all->n; i++) {
        struct bucket *b = &all->items[i];
        b->block = block;
        if (by_tokens(b)) {
            b->page = plim_mul_sat(b->token_bytes, block);
        }
        widest = plim_max_u64(widest, b->page);
    }
    for (size_t i = 0; i < all->n; i++) {
        struct bucket *b = &all->items[i];
        if (b->kind == PLIM_KV_STATE && b->page < widest) {
            b->padded = widest - b->page;
            b->page = widest;
        }
    }
}

/* Windows count as full attention when the hybrid manager is off; then kinds that only differ by it merge. */
static void merge_windows(struct buckets *all)
{
    bool full = false;
    for (size_t i = 0; i < all->n; i++) {
        full = full || all->items[i].kind == PLIM_KV_FULL;
    }
    for (size_t i = 0; full && i < all->n; i++) {
        struct bucket *b = &all->items[i];
        if (b->kind == PLIM_KV_SLIDING || b->kind == PLIM_KV_CHUNKED) {
            b->kind = PLIM_KV_FULL;
            b->window = 0;
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < all->n; i++) {
        size_t same = 0;
        while (same < kept && (all->items[same].kind != all->items[i].kind ||
                               all->items[same].window != all->items[i].window ||
                               all->items[same].token_bytes != all->items[i].token_bytes)) {
            same++;
        }
        if (same < kept && by_tokens(&all->items[i])) {
            all->items[same].layers += all->items[i].layers;
        } else {
            all->items[kept++] = all->items[i];
        }
    }
    all->n = kept;
}

/* ---- groups ------------------------------------------------------------------------------------------ */

static bool keeps_all(enum plim_kv_kind kind)
{
    return kind == PLIM_KV_FULL || kind == PLIM_KV_MLA || kind == PLIM_KV_INDEX;
}

/* Every layer needs the same slots for tokens: one group, whatever the page sizes. */
static bool one_type(const struct buckets *all)
{
    for (size_t i = 1; i < all->n; i++) {
        const struct bucket *a = &all->items[0], *b = &all->items[i];
        bool same =
            keeps_all(a->kind) ? keeps_all(b->kind) : a->kind == b->kind && a->window == b->window;
        if (!same) {
            return false;
        }
    }
    return true;
}

static struct plim_vllm_group group_of(const struct bucket *b, uint32_t layers,
                                       const struct plim_vllm_settings *set,
                                       const struct plim_card *card)
{
    struct plim_vllm_group group = {
        .kind = b->kind,
        .layers = layers,
        .block_size = b->block,
        .page_bytes = b->page,
        .padded_bytes = b->padded,
        .window = b->window,
    };
    if (b->kind == PLIM_KV_STATE) {
        group.request_blocks = state_blocks(set, card, b->mixer);
    } else if (b->kind == PLIM_KV_CROSS) {
        group.request_blocks = plim_ceil_div(b->encoder, b->block);
    }
    group.request_blocks = blocks_of(&group, set, set->max_model_len);
    return group;
}

/* Equal pages: larger blocks where they divide, padding elsewhere. */
static void unify_pages(struct buckets *all)
{
    uint64_t widest = 0;
    for (size_t i = 0; i < all->n; i++) {
        widest = plim_max_u64(widest, all->items[i].page);
    }
    for (size_t i = 0; i < all->n; i++) {
        struct bucket *b = &all->items[i];
        bool divides = by_tokens(b) && b->page != 0 && widest % b->page == 0;
        uint64_t block = divides ? plim_mul_sat(b->block, widest / b->page) : 0;
        if (b->page < widest && block != 0 && block <= UINT32_MAX) {
            b->block = (uint32_t)block;
        } else {
            b->padded += widest - b->page;
        }
        b->page = widest;
    }
}

static uint32_t group_size(const struct buckets *all)
{
    uint32_t least = UINT32_MAX, most = 0;
    for (size_t i = 0; i < all->n; i++) {
        least = all->items[i].layers < least ? all->items[i].layers : least;
        most = all->items[i].layers > most ? all->items[i].layers : most;
    }
    return (uint64_t)most * 2 < (uint64_t)least * 3 ? most : least;
}

static void split_buckets(const struct buckets *all, const struct plim_card *card,
                          struct plim_vllm_start *s)
{
    uint32_t size = group_size(all);
    for (size_t i = 0; i < all->n; i++) {
        const struct bucket *b = &all->items[i];
        uint32_t n = (b->layers + size - 1) / size;
        for (uint32_t k = 0; k < n; k++) { /* layers k, k + n, k + 2n, ... */
            uint32_t layers = b->layers / n + (k < b->layers % n);
            s->groups[s->n_groups++] = group_of(b, layers, &s->settings, card);
        }
    }
}

static void sum_blocks(struct plim_vllm_start *s)
{
    for (uint32_t i = 0; i < s->n_groups; i++) {
        s->block_bytes = plim_max_u64(s->block_bytes,
                                      plim_mul_sat(s->groups[i].layers, s->groups[i].page_bytes));
        s->request_blocks += s->groups[i].request_blocks;
    }
}

enum plim_status plim__groups(struct plim_arena *arena, const struct plim_geometry *g,
                              const struct plim_card *card, struct plim_vllm_start *s,
                              struct plim_err *err)
{
    struct plim_vllm_settings *set = &s->settings;
    struct buckets all;
    PLIM_TRY(gather(arena, g, set, &all, err));
    bool mla = false;
    uint64_t layers = 0;
    for (size_t i = 0; i < all.n; i++) {
        mla = mla || all.items[i].kind == PLIM_KV_MLA;
        layers += all.items[i].layers;
    }
    if (!set->block_given) {
        set->block_size = kernel_block(set, card, g, mla);
    }
    set->block_size = hybrid_block(set, card, g, &all, mla);
    size_pages(&all, set->block_size);
    if (!set->hybrid_manager) {
        merge_windows(&all);
    }
    void *groups;
    PLIM_TRY(
        plim_arena_array(arena, (size_t)layers + 1, sizeof(struct plim_vllm_group), &groups, err));
    s->groups = groups;
    if (all.n == 0) {
        return PLIM_OK;
    }
    if (!one_type(&all)) {
        unify_pages(&all);
        split_buckets(&all, card, s);
        sum_blocks(s);
        return PLIM_OK;
    }
    s->groups[0] = group_of(&all.items[0], 0, set, card);
    s->n_groups = 1;
    for (size_t i = 0; i < all.n; i++) { /* pages side by side in one block */
        s->groups[0].layers += all.items[i].layers;
        uint64_t pages = plim_mul_sat(all.items[i].layers, all.items[i].page);
        s->block_bytes = plim_add_sat(s->block_bytes, pages);
    }
    s->request_blocks = s->groups[0].request_blocks;
    return PLIM_OK;
}

/* ---- the plan ---------------------------------------------------------------------------------------- */

void plim__plan_cache(struct plim_vllm_start *s)
{
    struct plim_vllm_settings *set = &s->settings;
    s->max_model_len = set->max_model_len;
    if (s->n_groups == 0 || s->block_bytes == 0) { /* no layer keeps anything */
        s->num_blocks = 1;
        return;
    }
    uint64_t bytes = s->available > 0 ? (uint64_t)s->available : 0;
    s->num_blocks = bytes / s->block_bytes;
    if (set->blocks_override != 0) {
        s->num_blocks = set->blocks_override;
        bytes = plim_mul_sat(set->blocks_override, s->block_bytes);
    }
    uint64_t usable = plim_sub_sat(bytes, s->block_bytes) / s->block_bytes;
    s->fitting_len = longest(s, usable, set->max_model_len);
    if (set->auto_len) {
        if (s->fitting_len == 0) {
            s->refusal = PLIM_VLLM_NO_AUTO;
            return;
        }
        s->max_model_len = s->fitting_len;
        s->request_blocks = plim__blocks_for(s, s->max_model_len);
        for (uint32_t i = 0; i < s->n_groups; i++) {
            s->groups[i].request_blocks = blocks_of(&s->groups[i], set, s->max_model_len);
        }
    } else if (bytes <= s->block_bytes) {
        s->refusal = PLIM_VLLM_NO_BLOCKS;
        return;
    } else if (s->request_blocks > usable) {
        s->refusal = PLIM_VLLM_NO_LENGTH;
        return;
    }
    s->concurrency = (double)s->num_blocks / (double)s->request_blocks;
    s->kv_tokens = plim_u64_of(s->concurrency * (double)s->max_model_len, INT64_MAX);
}
