/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Weights of recurrent mixers. Input projections that files hold in one tensor are put in pieces, because
 * devices divide the pieces by different rules (heads, groups).
 * Source: transformers 5.20.0 models/{mamba,mamba2,qwen3_next,kimi_linear,minimax,lfm2}.
 */

#include "serving/weights_int.h"

#include <string.h>

#define R PLIM_PART_RECURRENT

/* One piece of a fused projection or convolution, `groups` heads of a kind that may be replicated. */
static void put_piece(struct plim__weights *w, const char *name, bool linear, uint64_t rows,
                      uint64_t cols, uint32_t groups, bool first)
{
    enum plim_split split = groups != 0 ? PLIM_SPLIT_KV : PLIM_SPLIT_ROWS;
    if (linear) {
        plim__put(w, R, name, name, rows, cols, split);
    } else {
        plim__put_vector(w, R, name, rows, cols, split);
    }
    struct plim_weight *last = plim__last(w);
    last->kv_heads = groups;
    last->piece = !first;
    last->fused = name;
}

static void put_mamba1(struct plim__weights *w, const struct plim_layer *l)
{
    const struct plim_geometry *g = w->g;
    uint64_t inner = l->state_heads;
    uint64_t rank = l->state_rank;
    uint64_t state = l->state_cols;
    plim__put(w, R, "mamba.in_proj", NULL, 2 * inner, g->hidden, PLIM_SPLIT_ROWS);
    plim__put_bias(w, g->recurrent_bias, R, "mamba.in_proj", NULL, 2 * inner, PLIM_SPLIT_ROWS);
    plim__put_vector(w, R, "mamba.conv1d", inner, l->conv_kernel, PLIM_SPLIT_ROWS);
    plim__put_bias(w, g->conv_bias, R, "mamba.conv1d", NULL, inner, PLIM_SPLIT_ROWS);
    plim__put(w, R, "mamba.x_proj", NULL, rank + 2 * state, inner, PLIM_SPLIT_COLS);
    plim__put(w, R, "mamba.dt_proj", NULL, inner, rank, PLIM_SPLIT_ROWS);
    plim__put_bias(w, true, R, "mamba.dt_proj", NULL, inner, PLIM_SPLIT_ROWS);
    plim__put_vector(w, R, "mamba.A_log", inner, state, PLIM_SPLIT_ROWS);
    plim__put_vector(w, R, "mamba.D", inner, 1, PLIM_SPLIT_ROWS);
    plim__put(w, R, "mamba.out_proj", NULL, g->hidden, inner, PLIM_SPLIT_COLS);
    plim__put_bias(w, g->recurrent_bias, R, "mamba.out_proj", NULL, g->hidden, PLIM_SPLIT_COLS);
    if (strcmp(g->family, "jamba") == 0) {
        plim__put_vector(w, R, "mamba.dt_layernorm", rank, 1, PLIM_SPLIT_NONE);
        plim__put_vector(w, R, "mamba.b_layernorm", state, 1, PLIM_SPLIT_NONE);
        plim__put_vector(w, R, "mamba.c_layernorm", state, 1, PLIM_SPLIT_NONE);
    }
}

static void put_mamba2(struct plim__weights *w, const struct plim_layer *l)
{
    const struct plim_geometry *g = w->g;
    uint64_t inner = (uint64_t)l->state_heads * l->state_rows;
    uint64_t groups = (uint64_t)l->state_groups * l->state_cols;
    uint64_t h = g->hidden;
    put_piece(w, "mamba.in_proj", true, 2 * inner, h, 0, true); /* gate and x */
    put_piece(w, "mamba.in_proj", true, groups, h, l->state_groups, false);
    put_piece(w, "mamba.in_proj", true, groups, h, l->state_groups, false);
    put_piece(w, "mamba.in_proj", true, l->state_heads, h, 0, false);
    uint64_t rows = 2 * inner + 2 * groups + l->state_heads;
    plim__put_bias(w, g->recurrent_bias, R, "mamba.in_proj", NULL, rows, PLIM_SPLIT_ROWS);
    put_piece(w, "mamba.conv1d", false, inner, l->conv_kernel, 0, true);
    put_piece(w, "mamba.conv1d", false, groups, l->conv_kernel, l->state_groups, false);
    put_piece(w, "mamba.conv1d", false, groups, l->conv_kernel, l->state_groups, false);
    if (g->conv_bias) {
        put_piece(w, "mamba.conv1d", false, inner, 1, 0, true);
        put_piece(w, "mamba.conv1d", false, 2 * groups, 1, l->state_groups, false);
    }
    for (int i = 0; i < 3; i++) { /* dt_bias, A_log, D */
        plim__put_vector(w, R, "mamba.heads", l->state_heads, 1, PLIM_SPLIT_ROWS);
    }
    if (l->state_norm) {
        plim__put_vector(w, R, "mamba.norm", inner, 1, PLIM_SPLIT_ROWS);
    }
    plim__put(w, R, "mamba.out_proj", NULL, h, inner, PLIM_SPLIT_COLS);
    plim__put_bias(w, g->recurrent_bias, R, "mamba.out_proj", NULL, h, PLIM_SPLIT_COLS);
}

static void put_delta_net(struct plim__weights *w, const struct plim_layer *l)
{
    uint64_t h = w->g->hidden;
    uint64_t keys = (uint64_t)l->state_groups * l->state_cols;
    uint64_t values = (uint64_t)l->state_heads * l->state_rows;
    bool split =
        strcmp(w->g->family, "qwen3_next") != 0; /* files of Qwen3.5 hold four projections */
    plim__put(w, R, split ? "linear_attn.in_proj_qkv" : "linear_attn.in_proj_qkvz", "in_proj_qkvz",
              2 * keys + values, h, PLIM_SPLIT_ROWS);
    plim__put(w, R, split ? "linear_attn.in_proj_z" : "linear_attn.in_proj_qkvz", "in_proj_qkvz",
              values, h, PLIM_SPLIT_ROWS);
    plim__last(w)->piece = !split;
    for (int i = 0; i < 2; i++) { /* b and a */
        plim__put(w, R,
                  split ? (i == 0 ? "linear_attn.in_proj_b" : "linear_attn.in_proj_a")
                        : "linear_attn.in_proj_ba",
                  "in_proj_ba", l->state_heads, h, PLIM_SPLIT_ROWS);
        plim__last(w)->piece = !split && i == 1;
    }
    plim__put_vector(w, R, "linear_attn.conv1d", l->conv_channels, l->conv_kernel, PLIM_SPLIT_ROWS);
    plim__put_vector(w, R, "linear_attn.dt_bias", l->state_heads, 1, PLIM_SPLIT_ROWS);
    plim__put_vector(w, R, "linear_attn.A_log", l->state_heads, 1, PLIM_SPLIT_ROWS);
    plim__put_vector(w, R, "linear_attn.norm", l->state_rows, 1, PLIM_SPLIT_NONE);
    plim__put(w, R, "linear_attn.out_proj", NULL, h, values, PLIM_SPLIT_COLS);
}

static void put_kimi_delta(struct plim__weights *w, const struct plim_layer *l)
{
    static const char *const qkv[3] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    uint64_t h = w->g->hidden;
    uint64_t all = (uint64_t)l->state_heads * l->state_rows;
    for (int i = 0; i < 3; i++) {
        plim__put(w, R, qkv[i], NULL, all, h, PLIM_SPLIT_ROWS);
        plim__put_vector(w, R, "self_attn.conv1d", all, l->conv_kernel, PLIM_SPLIT_ROWS);
    }
    for (int i = 0; i < 2; i++) { /* forget gate, output gate: low rank each */
        plim__put(w, R, i == 0 ? "self_attn.f_a_proj" : "self_attn.g_a_proj", NULL, l->state_rank,
                  h, PLIM_SPLIT_NONE);
        plim__put(w, R, i == 0 ? "self_attn.f_b_proj" : "self_attn.g_b_proj", NULL, all,
                  l->state_rank, PLIM_SPLIT_ROWS);
    }
    plim__put(w, R, "self_attn.b_proj", NULL, l->state_heads, h, PLIM_SPLIT_ROWS);
    plim__put_vector(w, R, "self_attn.dt_bias", all, 1, PLIM_SPLIT_ROWS);
    plim__put_vector(w, R, "self_attn.A_log", l->state_heads, 1, PLIM_SPLIT_ROWS);
    plim__put_vector(w, R, "self_attn.o_norm", l->state_rows, 1, PLIM_SPLIT_NONE);
    plim__put(w, R, "self_attn.o_proj", NULL, h, all, PLIM_SPLIT_COLS);
}

static void put_linear(struct plim__weights *w, const struct plim_layer *l)
{
    uint64_t h = w->g->hidden;
    uint64_t all = (uint64_t)l->state_heads * l->state_rows;
    plim__put(w, R, "self_attn.qkv_proj", NULL, 3 * all, h, PLIM_SPLIT_ROWS);
    plim__put(w, R, "self_attn.output_gate", NULL, all, h, PLIM_SPLIT_ROWS);
    plim__put_vector(w, R, "self_attn.norm", all, 1, PLIM_SPLIT_ROWS);
    plim__put(w, R, "self_attn.out_proj", NULL, h, all, PLIM_SPLIT_COLS);
}

static void put_short_conv(struct plim__weights *w, const struct plim_layer *l)
{
    uint64_t h = w->g->hidden;
    bool bias = w->g->conv_bias;
    plim__put(w, R, "conv.in_proj", NULL, 3 * h, h, PLIM_SPLIT_ROWS);
    plim__put_bias(w, bias, R, "conv.in_proj", NULL, 3 * h, PLIM_SPLIT_ROWS);
    plim__put_vector(w, R, "conv.conv", l->conv_channels, l->conv_kernel, PLIM_SPLIT_ROWS);
    plim__put_bias(w, bias, R, "conv.conv", NULL, l->conv_channels, PLIM_SPLIT_ROWS);
    plim__put(w, R, "conv.out_proj", NULL, h, h, PLIM_SPLIT_COLS);
    plim__put_bias(w, bias, R, "conv.out_proj", NULL, h, PLIM_SPLIT_COLS);
}

void plim__put_recurrent(struct plim__weights *w, const struct plim_layer *l)
{
    switch (l->recurrent) {
    case PLIM_MIXER_MAMBA1:
        put_mamba1(w, l);
        break;
    case PLIM_MIXER_MAMBA2:
        put_mamba2(w, l);
        break;
    case PLIM_MIXER_GATED_DELTA:
        put_delta_net(w, l);
        break;
    case PLIM_MIXER_KDA:
        put_kimi_delta(w, l);
        break;
    case PLIM_MIXER_LINEAR:
        put_linear(w, l);
        break;
    case PLIM_MIXER_SHORT_CONV:
        put_short_conv(w, l);
        break;
    case PLIM_MIXER_NONE:
    case PLIM_MIXER_FULL:
    case PLIM_MIXER_SLIDING:
    case PLIM_MIXER_CHUNKED:
    case PLIM_MIXER_MLA:
    case PLIM_MIXER_COUNT:
        break;
    }
}
