/* SPDX-License-Identifier: Apache-2.0 */
/* See kv.h. */

#include "serving/kv.h"

#include "base/num.h"
#include "base/vec.h"

static const char *const format_texts[PLIM_KV_FORMAT_COUNT] = {
#define PLIM__X(name, text, meaning) text,
    PLIM_KV_FORMAT_MAP(PLIM__X)
#undef PLIM__X
};

const char *plim_kv_format_text(enum plim_kv_format format)
{
    return (unsigned)format < PLIM_KV_FORMAT_COUNT ? format_texts[format] : "unknown";
}

bool plim_kv_format_from(struct plim_str text, enum plim_kv_format *out)
{
    static const struct {
        const char *text;
        enum plim_kv_format format;
    } others[] = {{"half", PLIM_KV_FORMAT_F16},          {"f16", PLIM_KV_FORMAT_F16},
                  {"fp16", PLIM_KV_FORMAT_F16},          {"bf16", PLIM_KV_FORMAT_BF16},
                  {"f32", PLIM_KV_FORMAT_F32},           {"float", PLIM_KV_FORMAT_F32},
                  {"nvfp4_4over6", PLIM_KV_FORMAT_NVFP4}};
    for (unsigned i = 0; i < PLIM_KV_FORMAT_COUNT; i++) {
        if (plim_str_eq(text, plim_str_from(format_texts[i]))) {
            *out = (enum plim_kv_format)i;
            return true;
        }
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(others); i++) {
        if (plim_str_eq(text, plim_str_from(others[i].text))) {
            *out = others[i].format;
            return true;
        }
    }
    return false;
}

/* ---- one vector */

static enum plim_kv_format format_of_dtype(enum plim_dtype dtype)
{
    return dtype == PLIM_DTYPE_F32   ? PLIM_KV_FORMAT_F32
           : dtype == PLIM_DTYPE_F16 ? PLIM_KV_FORMAT_F16
                                     : PLIM_KV_FORMAT_BF16;
}

/* Bytes of `d` elements of keys (or values) of one head and token; false: the format cannot hold them. */
static bool side_bytes(enum plim_kv_format format, uint64_t d, bool values, uint64_t *out)
{
    static const struct {
        enum plim_kv_format format;
        enum plim_dtype dtype;
    } blocks[] = {
        {PLIM_KV_FORMAT_Q8_0, PLIM_DTYPE_Q8_0}, {PLIM_KV_FORMAT_Q5_1, PLIM_DTYPE_Q5_1},
        {PLIM_KV_FORMAT_Q5_0, PLIM_DTYPE_Q5_0}, {PLIM_KV_FORMAT_Q4_1, PLIM_DTYPE_Q4_1},
        {PLIM_KV_FORMAT_Q4_0, PLIM_DTYPE_Q4_0}, {PLIM_KV_FORMAT_IQ4_NL, PLIM_DTYPE_IQ4_NL}};
    for (size_t i = 0; i < PLIM_COUNT_OF(blocks); i++) {
        if (blocks[i].format == format) {
            return plim_dtype_bytes(blocks[i].dtype, d, out);
        }
    }
    uint64_t four = (d + 1) / 2; /* packed at four bits */
    uint64_t three = (3 * d + 7) / 8;
    switch ((int)format) {
    case PLIM_KV_FORMAT_F32:
        *out = 4 * d;
        return true;
    case PLIM_KV_FORMAT_F16:
    case PLIM_KV_FORMAT_BF16:
        *out = 2 * d;
        return true;
    case PLIM_KV_FORMAT_FP8:
    case PLIM_KV_FORMAT_FP8_E4M3:
    case PLIM_KV_FORMAT_FP8_E5M2:
    case PLIM_KV_FORMAT_FP8_INC:
    case PLIM_KV_FORMAT_INT8:
        *out = d;
        return true;
    case PLIM_KV_FORMAT_FP8_TOKEN_HEAD:
    case PLIM_KV_FORMAT_INT8_TOKEN_HEAD:
        *out = d + 4;
        return true;
    case PLIM_KV_FORMAT_INT4_TOKEN_HEAD:
        *out = four + 4;
        return true;
    case PLIM_KV_FORMAT_NVFP4:
        *out = d / 2 + d / 16;
        return d % 16 == 0;
    case PLIM_KV_FORMAT_TQ_K8V4:
        *out = values ? four + 4 : d;
        return true;
    case PLIM_KV_FORMAT_TQ_4BIT:
        *out = four + (values ? 4 : 2);
        return true;
    case PLIM_KV_FORMAT_TQ_K3V4:
        *out = values ? four + 4 : three + 2;
        return true;
    case PLIM_KV_FORMAT_TQ_3BIT:
        *out = three + (values ? 4 : 2);
        return true;
    default:
        return false;
    }
}

static bool is_turboquant(enum plim_kv_format format)
{
    return format >= PLIM_KV_FORMAT_TQ_K8V4 && format <= PLIM_KV_FORMAT_TQ_3BIT;
}

/* K and V of one head and token. TurboQuant keeps both in one slot of an even number of bytes. */
static bool head_bytes(enum plim_kv_format k, enum plim_kv_format v, uint64_t d, uint64_t dv,
                       uint64_t *out)
{
    uint64_t a = 0;
    uint64_t b = 0;
    if (!side_bytes(k, d, false, &a) || !side_bytes(v, dv, true, &b)) {
        return false;
    }
    *out = is_turboquant(k) ? plim_round_up(a + b, 2) : a + b;
    return true;
}

/* ---- the list */

struct reading {
    const struct plim_geometry *g;
    const struct plim_placement *at;
    const struct plim_kv_options *opts;
    enum plim_kv_format k;
    enum plim_kv_format v;
    enum plim_dtype state_dtype;
    enum plim_dtype conv_dtype;
    PLIM_VEC(struct plim_kv_layer) list;
    struct plim_err *err;
};

static uint32_t heads_here(uint32_t heads, uint32_t tp)
{
    return heads >= tp ? heads / tp : 1;
}

static enum plim_status put(struct reading *r, struct plim_kv_layer entry)
{
    return plim_vec_push(&r->list, r->err, entry);
}

static enum plim_status put_latent(struct reading *r, uint32_t index, const struct plim_layer *l,
                                   bool mtp)
{
    uint32_t latent = l->kv_lora_rank + l->qk_rope_dim;
    struct plim_kv_layer entry = {.layer = index,
                                  .kind = PLIM_KV_MLA,
                                  .mixer = l->mixer,
                                  .kv_heads = 1,
                                  .head_dim = latent,
                                  .interleaved = true,
                                  .mtp = mtp};
    if (r->k == PLIM_KV_FORMAT_FP8_DS_MLA) {
        entry.token_bytes = 656;
    } else if (r->k == PLIM_KV_FORMAT_NVFP4_DS_MLA) {
        entry.token_bytes = 352;
    } else if (is_turboquant(r->k) || !side_bytes(r->k, latent, false, &entry.token_bytes)) {
        return plim__fail(r->err, PLIM_E_USAGE,
                          "a KV cache of %s cannot hold latents of %u elements",
                          plim_kv_format_text(r->k), latent);
    }
    PLIM_TRY(put(r, entry));
    if (l->index_heads == 0 || l->index_dim == 0) {
        return PLIM_OK;
    }
    entry.kind = PLIM_KV_INDEX; /* fp8 keys, one fp32 scale for 128 elements */
    entry.head_dim = l->index_dim;
    entry.token_bytes = l->index_dim + 4 * (((uint64_t)l->index_dim + 127) / 128);
    return put(r, entry);
}

static enum plim_kv_kind kind_of(const struct reading *r, const struct plim_layer *l)
{
    if (r->opts->no_window || l->window == 0) {
        return PLIM_KV_FULL;
    }
    return l->mixer == PLIM_MIXER_CHUNKED ? PLIM_KV_CHUNKED : PLIM_KV_SLIDING;
}

static enum plim_status put_attention(struct reading *r, uint32_t index, const struct plim_layer *l,
                                      bool mtp, bool plain)
{
    enum plim_kv_format k = r->k;
    enum plim_kv_format v = r->v;
    if (plain) { /* TurboQuant leaves the outermost layers as they are */
        k = v = format_of_dtype(r->g->dtype);
    }
    uint64_t head = 0;
    if (!head_bytes(k, v, l->head_dim, l->v_head_dim, &head)) {
        return plim__fail(r->err, PLIM_E_USAGE, "a KV cache of %s cannot hold heads of %u elements",
                          plim_kv_format_text(k), l->head_dim);
    }
    enum plim_kv_kind kind = kind_of(r, l);
    struct plim_kv_layer entry = {.layer = index,
                                  .kind = kind,
                                  .mixer = l->mixer,
                                  .window = kind == PLIM_KV_FULL ? 0 : l->window,
                                  .kv_heads = heads_here(l->kv_heads, r->at->tp),
                                  .head_dim = l->head_dim,
                                  .v_head_dim = l->v_head_dim,
                                  .interleaved = kind == PLIM_KV_FULL,
                                  .mtp = mtp};
    entry.token_bytes = entry.kv_heads * head;
    return put(r, entry);
}

static enum plim_status put_state(struct reading *r, uint32_t index, const struct plim_layer *l)
{
    uint64_t tp = r->at->tp;
    uint64_t channels = l->conv_channels / tp;
    uint32_t groups = l->state_groups;
    if (l->recurrent ==
        PLIM_MIXER_MAMBA2) { /* groups are replicated where there are fewer than devices */
        channels = (uint64_t)l->state_heads * l->state_rows / tp +
                   2 * (uint64_t)heads_here(groups, r->at->tp) * l->state_cols;
    }
    uint64_t conv = 0, matrix = 0, both = 0;
    uint64_t kept = l->conv_kernel > 0 ? l->conv_kernel - 1 : 0;
    uint64_t n = (uint64_t)l->state_heads / tp * l->state_rows;
    if (plim_mul_overflows(kept, channels, &kept) ||
        !plim_dtype_bytes(r->conv_dtype, kept, &conv) || plim_mul_overflows(n, l->state_cols, &n) ||
        !plim_dtype_bytes(l->recurrent == PLIM_MIXER_KDA ? PLIM_DTYPE_F32 : r->state_dtype, n,
                          &matrix) ||
        plim_add_overflows(conv, matrix, &both)) {
        return plim__fail(r->err, PLIM_E_RANGE, "the state of layer %u has no size", index);
    }
    return put(r, (struct plim_kv_layer){.layer = index,
                                         .kind = PLIM_KV_STATE,
                                         .mixer = l->recurrent,
                                         .state_bytes = both,
                                         .conv_bytes = conv});
}

static enum plim_status put_cross(struct reading *r, uint32_t index, const struct plim_layer *l)
{
    uint64_t head = 0;
    if (!head_bytes(r->k, r->v, l->head_dim, l->v_head_dim, &head)) {
        return plim__fail(r->err, PLIM_E_USAGE, "a KV cache of %s cannot hold heads of %u elements",
                          plim_kv_format_text(r->k), l->head_dim);
    }
    uint32_t heads = heads_here(l->cross_kv_heads, r->at->tp);
    uint64_t all = 0;
    if (plim_mul_overflows(heads * head, r->g->cross_tokens, &all)) {
        return plim__fail(r->err, PLIM_E_RANGE, "the cross attention of layer %u has no size",
                          index);
    }
    return put(r, (struct plim_kv_layer){.layer = index,
                                         .kind = PLIM_KV_CROSS,
                                         .mixer = PLIM_MIXER_FULL,
                                         .kv_heads = heads,
                                         .head_dim = l->head_dim,
                                         .v_head_dim = l->v_head_dim,
                                         .state_bytes = all});
}

static bool is_hybrid(const struct plim_geometry *g)
{
    for (uint32_t i = 0; i < g->n_layers; i++) {
        if (g->layers[i].recurrent != PLIM_MIXER_NONE) {
            return true;
        }
    }
    return false;
}

static enum plim_status put_layer(struct reading *r, uint32_t index, const struct plim_layer *l,
                                  bool mtp)
{
    bool outermost = index < 2 || index + 2 >= r->g->n_layers;
    bool plain = is_turboquant(r->k) && outermost && !is_hybrid(r->g);
    if (l->mixer == PLIM_MIXER_MLA) {
        PLIM_TRY(put_latent(r, index, l, mtp));
    } else if (plim_layer_is_attention(l) && l->kv_from == PLIM_LAYER_OWN_KV) {
        PLIM_TRY(put_attention(r, index, l, mtp, plain));
    }
    if (l->recurrent != PLIM_MIXER_NONE) {
        PLIM_TRY(put_state(r, index, l));
    }
    return l->cross_kv_heads != 0 ? put_cross(r, index, l) : PLIM_OK;
}

static enum plim_status check(const struct reading *r)
{
    const struct plim_placement *at = r->at;
    if (at->tp == 0 || at->pp == 0 || at->dcp == 0 || at->pp_rank >= at->pp ||
        at->tp % at->dcp != 0 || at->pp > r->g->n_layers) {
        return plim__fail(r->err, PLIM_E_USAGE,
                          "tp %u, pp %u, decode context parallel %u do not go together", at->tp,
                          at->pp, at->dcp);
    }
    bool packed = r->k == PLIM_KV_FORMAT_FP8_DS_MLA || r->k == PLIM_KV_FORMAT_NVFP4_DS_MLA;
    for (uint32_t i = 0; packed && i < r->g->n_layers; i++) {
        if (plim_layer_is_attention(&r->g->layers[i]) && r->g->layers[i].mixer != PLIM_MIXER_MLA) {
            return plim__fail(r->err, PLIM_E_USAGE, "%s holds latents, this model has none",
                              plim_kv_format_text(r->k));
        }
    }
    return PLIM_OK;
}

static enum plim_status read_layers(struct reading *r)
{
    const struct plim_geometry *g = r->g;
    uint32_t first = 0;
    uint32_t end = 0;
    PLIM_TRY(check(r));
    plim_stage_layers(g->n_layers, r->at->pp, r->at->pp_rank, &first, &end);
    for (uint32_t i = first; i < end; i++) {
        PLIM_TRY(put_layer(r, i, &g->layers[i], false));
    }
    for (uint32_t i = 0; i < g->n_mtp && r->at->mtp && end == g->n_layers; i++) {
        PLIM_TRY(put_layer(r, g->n_layers + i, &g->mtp[i], true));
    }
    return PLIM_OK;
}

/* AUTO is what the checkpoint declares, else the model's type. */
static enum plim_kv_format resolve(const struct plim_geometry *g, enum plim_kv_format format)
{
    if (format != PLIM_KV_FORMAT_AUTO) {
        return format;
    }
    return g->quant.kv_bits == 8   ? PLIM_KV_FORMAT_FP8
           : g->quant.kv_bits == 4 ? PLIM_KV_FORMAT_NVFP4
                                   : format_of_dtype(g->dtype);
}

enum plim_status plim_kv_layers(struct plim_arena *arena, const struct plim_geometry *g,
                                const struct plim_placement *at, const struct plim_kv_options *opts,
                                struct plim_kv_list *out, struct plim_err *err)
{
    struct reading r = {.g = g, .at = at, .opts = opts, .err = err};
    r.k = resolve(g, opts->k);
    r.v = opts->v != PLIM_KV_FORMAT_AUTO ? opts->v : r.k;
    r.state_dtype = opts->state_dtype != PLIM_DTYPE_UNKNOWN ? opts->state_dtype : g->state_dtype;
    r.conv_dtype = opts->conv_dtype != PLIM_DTYPE_UNKNOWN ? opts->conv_dtype : g->dtype;
    enum plim_status st = read_layers(&r);
    void *copy = NULL;
    if (st == PLIM_OK) {
        st = plim_arena_array(arena, r.list.n, sizeof *r.list.items, &copy, err);
    }
    if (st == PLIM_OK) {
        if (r.list.n > 0) {
            memcpy(copy, r.list.items, r.list.n * sizeof *r.list.items);
        }
        *out = (struct plim_kv_list){copy, r.list.n};
    }
    plim_vec_fini(&r.list);
    return st;
}

/* ---- sums */

void plim_kv_sum(const struct plim_kv_list *list, struct plim_kv_sum *out)
{
    *out = (struct plim_kv_sum){0};
    for (size_t i = 0; i < list->n; i++) {
        const struct plim_kv_layer *l = &list->items[i];
        if (l->window != 0) {
            uint64_t cap = 0;
            bool over = plim_mul_overflows(l->token_bytes, l->window, &cap);
            out->windowed_token_bytes = plim_add_sat(out->windowed_token_bytes, l->token_bytes);
            out->window_cap_bytes = plim_add_sat(out->window_cap_bytes, over ? UINT64_MAX : cap);
        } else {
            out->token_bytes = plim_add_sat(out->token_bytes, l->token_bytes);
        }
        out->state_bytes = plim_add_sat(out->state_bytes, l->state_bytes);
    }
}

uint64_t plim_kv_sequence_bytes(const struct plim_kv_list *list, uint32_t dcp, uint64_t tokens)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct plim_kv_layer *l = &list->items[i];
        uint64_t kept = l->window != 0 ? plim_min_u64(tokens, l->window) : tokens;
        uint64_t bytes = 0;
        if (l->interleaved && dcp > 1) {
            kept = kept / dcp + (kept % dcp != 0 ? 1 : 0);
        }
        if (plim_mul_overflows(kept, l->token_bytes, &bytes)) {
            bytes = UINT64_MAX;
        }
        sum = plim_add_sat(sum, plim_add_sat(bytes, l->state_bytes));
    }
    return sum;
}
