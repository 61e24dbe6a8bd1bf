/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of all weights of a geometry, and their shares of a device. See weights.h. */

#include "serving/weights_int.h"

#include "base/num.h"

static const char *const part_texts[PLIM_PART_COUNT] = {
#define PLIM__X(name, text, meaning) text,
    PLIM_PART_MAP(PLIM__X)
#undef PLIM__X
};

const char *plim_part_text(enum plim_part part)
{
    return (unsigned)part < PLIM_PART_COUNT ? part_texts[part] : "unknown";
}

/* ---- writing the list */

static void put(struct plim__weights *w, const struct plim_weight *weight)
{
    if (w->st == PLIM_OK && weight->rows > 0 && weight->cols > 0) {
        w->st = plim_vec_push(&w->list, w->err, *weight);
        if (w->st == PLIM_OK && w->retag) {
            w->list.items[w->list.n - 1].part = w->part_of;
        }
    }
}

void plim__put(struct plim__weights *w, enum plim_part part, const char *name, const char *fused,
               uint64_t rows, uint64_t cols, enum plim_split split)
{
    put(w, &(struct plim_weight){.part = part,
                                 .layer = w->layer,
                                 .name = name,
                                 .fused = fused,
                                 .rows = rows,
                                 .cols = cols,
                                 .copies = 1,
                                 .split = split,
                                 .dtype = w->g->dtype,
                                 .linear = true});
}

void plim__put_bias(struct plim__weights *w, bool on, enum plim_part part, const char *name,
                    const char *fused, uint64_t rows, enum plim_split split)
{
    if (on) {
        plim__put_vector(w, part, name, rows, 1,
                         split == PLIM_SPLIT_COLS ? PLIM_SPLIT_NONE : split);
        plim__last(w)->fused = fused;
    }
}

void plim__put_vector(struct plim__weights *w, enum plim_part part, const char *name, uint64_t rows,
                      uint64_t cols, enum plim_split split)
{
    put(w, &(struct plim_weight){.part = part,
                                 .layer = w->layer,
                                 .name = name,
                                 .rows = rows,
                                 .cols = cols,
                                 .copies = 1,
                                 .split = split,
                                 .dtype = w->g->dtype});
}

void plim__put_norm(struct plim__weights *w, enum plim_part part, const char *name, uint64_t n)
{
    if (plim__family_has(w->family, NORM_BARE)) {
        return;
    }
    plim__put_vector(w, part, name, n, 1, PLIM_SPLIT_NONE);
    plim__put_bias(w, plim__family_has(w->family, NORM_BIAS), part, name, NULL, n, PLIM_SPLIT_NONE);
}

struct plim_weight *plim__last(struct plim__weights *w)
{
    return w->st == PLIM_OK && w->list.n > 0 ? &w->list.items[w->list.n - 1] : &w->scrap;
}

/* ---- outside the layers */

static void put_embeddings(struct plim__weights *w)
{
    const struct plim_geometry *g = w->g;
    uint64_t dim = g->embedding_dim != 0 ? g->embedding_dim : g->hidden;
    plim__put_vector(w, PLIM_PART_EMBEDDING, "model.embed_tokens", g->vocab, dim, PLIM_SPLIT_VOCAB);
    plim__put_vector(w, PLIM_PART_EMBEDDING, "model.embed_positions", g->learned_positions,
                     g->hidden, PLIM_SPLIT_NONE);
    if (g->embedding_dim != 0) {
        plim__put(w, PLIM_PART_EMBEDDING, "model.project_in", NULL, g->hidden, dim,
                  PLIM_SPLIT_NONE);
        plim__put(w, PLIM_PART_EMBEDDING, "model.project_out", NULL, dim, g->hidden,
                  PLIM_SPLIT_NONE);
    }
    if (plim__family_has(w->family, EMBED_NORM)) {
        plim__put_norm(w, PLIM_PART_NORM, "model.embed_norm", g->hidden);
    }
    if (g->layer_inputs != 0) {
        uint64_t all = (uint64_t)g->n_layers * g->layer_inputs;
        plim__put_vector(w, PLIM_PART_EMBEDDING, "model.embed_tokens_per_layer",
                         g->layer_inputs_vocab, all, PLIM_SPLIT_VOCAB);
        plim__put(w, PLIM_PART_EMBEDDING, "model.per_layer_model_projection", NULL, all, g->hidden,
                  PLIM_SPLIT_ROWS);
        plim__put_vector(w, PLIM_PART_NORM, "model.per_layer_projection_norm", g->layer_inputs, 1,
                         PLIM_SPLIT_NONE);
    }
    for (uint32_t i = 1; i < g->streams; i++) {
        plim__put(w, PLIM_PART_EMBEDDING, "model.altup_projections", NULL, g->hidden, g->hidden,
                  PLIM_SPLIT_NONE);
        plim__put(w, PLIM_PART_EMBEDDING, "model.altup_unembed_projections", NULL, g->hidden,
                  g->hidden, PLIM_SPLIT_NONE);
    }
}

static void put_head(struct plim__weights *w)
{
    const struct plim_geometry *g = w->g;
    plim__put_norm(w, PLIM_PART_NORM, "model.norm", g->hidden);
    if (!g->tied) {
        plim__put(w, PLIM_PART_HEAD, "lm_head", NULL, g->vocab,
                  g->embedding_dim != 0 ? g->embedding_dim : g->hidden, PLIM_SPLIT_VOCAB);
    }
    plim__put_bias(w, g->head_bias, PLIM_PART_HEAD, "lm_head", NULL, g->vocab, PLIM_SPLIT_VOCAB);
}

/* Whisper: two convolutions, learned positions, its layers, a norm. */
static void put_encoder(struct plim__weights *w)
{
    const struct plim_geometry *g = w->g;
    w->retag = true;
    w->part_of = PLIM_PART_ENCODER;
    uint64_t h = g->hidden;
    plim__put_vector(w, PLIM_PART_ENCODER, "model.encoder.conv1", h, 3 * (uint64_t)g->mel_bins,
                     PLIM_SPLIT_NONE);
    plim__put_bias(w, true, PLIM_PART_ENCODER, "model.encoder.conv1", NULL, h, PLIM_SPLIT_NONE);
    plim__put_vector(w, PLIM_PART_ENCODER, "model.encoder.conv2", h, 3 * h, PLIM_SPLIT_NONE);
    plim__put_bias(w, true, PLIM_PART_ENCODER, "model.encoder.conv2", NULL, h, PLIM_SPLIT_NONE);
    plim__put_vector(w, PLIM_PART_ENCODER, "model.encoder.embed_positions", g->cross_tokens, h,
                     PLIM_SPLIT_NONE);
    for (uint32_t i = 0; i < g->n_encoder; i++) {
        plim__put_layer(w, &g->encoder[i]);
    }
    plim__put_norm(w, PLIM_PART_ENCODER, "model.encoder.layer_norm", h);
    w->retag = false;
}

/* Multi-token prediction. DeepSeek stores embedding and head once more for each layer. */
static void put_mtp(struct plim__weights *w)
{
    const struct plim_geometry *g = w->g;
    uint64_t h = g->hidden;
    w->retag = true;
    w->part_of = PLIM_PART_MTP;
    for (uint32_t i = 0; i < g->n_mtp; i++) {
        bool own = plim__family_has(w->family, MTP_DEEPSEEK);
        plim__put_layer(w, &g->mtp[i]);
        if (own || i == 0) {
            plim__put_vector(w, PLIM_PART_MTP, "mtp.eh_proj", h, 2 * h, PLIM_SPLIT_NONE);
            plim__put_norm(w, PLIM_PART_MTP, "mtp.enorm", h);
            plim__put_norm(w, PLIM_PART_MTP, "mtp.hnorm", h);
            plim__put_norm(w, PLIM_PART_MTP, "mtp.norm", h);
        }
        if (own) {
            plim__put_vector(w, PLIM_PART_MTP, "mtp.embed_tokens", g->vocab, h, PLIM_SPLIT_VOCAB);
            plim__put_vector(w, PLIM_PART_MTP, "mtp.shared_head.head", g->vocab, h,
                             PLIM_SPLIT_VOCAB);
        }
    }
    w->retag = false;
}

static void put_all(struct plim__weights *w)
{
    const struct plim_geometry *g = w->g;
    w->layer = PLIM_NO_LAYER;
    put_embeddings(w);
    for (uint32_t i = 0; i < g->n_layers && w->st == PLIM_OK; i++) {
        w->layer = i;
        plim__put_layer(w, &g->layers[i]);
    }
    w->layer = PLIM_NO_LAYER;
    put_head(w);
    if (g->n_encoder > 0) {
        put_encoder(w);
    }
    put_mtp(w);
    if (g->vision.kind != NULL) {
        w->retag = true;
        w->part_of = PLIM_PART_VISION;
        plim__put_vision(w);
    }
}

enum plim_status plim_weights_list(struct plim_arena *arena, const struct plim_geometry *g,
                                   struct plim_weight_list *out, struct plim_err *err)
{
    struct plim__weights w = {.g = g, .family = plim__family_of_type(g->family), .err = err};
    if (w.family == NULL) {
        return plim__fail(err, PLIM_E_UNSUPPORTED,
                          "the weights of %s cannot be counted from its sizes", g->architecture);
    }
    for (uint32_t i = 0; i < g->quant.n_schemes; i++) {
        if (g->quant.schemes[i].kind == PLIM_QUANT_OTHER) {
            return plim__fail(err, PLIM_E_UNSUPPORTED, "weights quantized by %s cannot be counted",
                              g->quant.method);
        }
    }
    put_all(&w);
    void *copy = NULL;
    if (w.st == PLIM_OK) {
        w.st = plim_arena_array(arena, w.list.n, sizeof *w.list.items, &copy, err);
    }
    if (w.st == PLIM_OK) {
        memcpy(copy, w.list.items, w.list.n * sizeof *w.list.items);
        *out = (struct plim_weight_list){copy, w.list.n};
    }
    plim_vec_fini(&w.list);
    return w.st;
}

/* ---- sums */

static uint64_t elements(const struct plim_weight *w)
{
    uint64_t n = 0;
    return plim_mul_overflows(w->rows, w->cols, &n) || plim_mul_overflows(n, w->copies, &n)
               ? UINT64_MAX
               : n;
}

static void add_weight(const struct plim_geometry *g, const struct plim_weight *w,
                       struct plim_weight_sum *sum)
{
    uint64_t n = elements(w);
    uint64_t bytes = plim_weight_bytes(g, w, sum->dtype_bytes);
    uint64_t active = n;
    if (w->part == PLIM_PART_EXPERTS && w->copies > 0) {
        uint32_t used = g->layers[w->layer].experts_per_token;
        active = n / w->copies * plim_min_u64(used, w->copies);
    } else if (w->part == PLIM_PART_MTP) {
        active = 0;
    }
    sum->parameters = plim_add_sat(sum->parameters, n);
    sum->bytes = plim_add_sat(sum->bytes, bytes);
    sum->part_parameters[w->part] = plim_add_sat(sum->part_parameters[w->part], n);
    sum->part_bytes[w->part] = plim_add_sat(sum->part_bytes[w->part], bytes);
    sum->active_parameters = plim_add_sat(sum->active_parameters, active);
}

static enum plim_status check_placement(const struct plim_geometry *g,
                                        const struct plim_placement *at, struct plim_err *err)
{
    if (at->tp == 0 || at->pp == 0 || at->ep == 0 || at->dcp == 0 || at->pp_rank >= at->pp ||
        at->pp > g->n_layers) {
        return plim__fail(err, PLIM_E_RANGE, "a placement of tp %u, pp %u, ep %u is none", at->tp,
                          at->pp, at->ep);
    }
    for (uint32_t i = 0; i < g->n_layers; i++) {
        const struct plim_layer *l = &g->layers[i];
        bool uneven =
            plim_layer_is_attention(l) &&
            (l->heads % at->tp != 0 || (l->kv_heads % at->tp != 0 && at->tp % l->kv_heads != 0));
        if (uneven) {
            return plim__fail(
                err, PLIM_E_RANGE,
                "%u heads (%u of keys and values) cannot be divided by tensor parallel %u",
                l->heads, l->kv_heads, at->tp);
        }
    }
    return PLIM_OK;
}

enum plim_status plim_weights_sum(struct plim_arena *arena, const struct plim_geometry *g,
                                  const struct plim_placement *at, struct plim_weight_sum *out,
                                  struct plim_err *err)
{
    struct plim_weight_list list;
    PLIM_TRY(check_placement(g, at, err));
    PLIM_TRY(plim_weights_list(arena, g, &list, err));
    struct plim_weight_sum sum = {0};
    for (size_t i = 0; i < list.n; i++) {
        struct plim_weight local;
        if (plim_weight_local(g, at, &list.items[i], &local)) {
            add_weight(g, &local, &sum);
        }
    }
    if (sum.bytes == UINT64_MAX || sum.parameters == UINT64_MAX) {
        return plim__fail(err, PLIM_E_RANGE, "the weights exceed 64 bits: no model is that large");
    }
    *out = sum;
    return PLIM_OK;
}
