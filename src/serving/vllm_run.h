/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_VLLM_RUN_H
#define PLIM_SERVING_VLLM_RUN_H

/*
 * Internal: how vLLM's modules allocate, as functions that mirror them on a tape. Each gives back a tensor
 * that it holds once, and leaves its arguments to the caller, as Python functions do.
 *
 * Facts were read off the allocation history of the real engine (vllm 0.33.0, eager and compiled, on the
 * simulated device) and are named by file in the .c files; tests/oracle/plan/ repeats the measurement.
 */

#include "serving/tape.h"
#include "serving/vllm.h"

/* What a norm is made of without torch.compile. */
enum plim__norm {
    PLIM__NORM_RMS,   /* one kernel; with a residual in place */
    PLIM__NORM_LAYER, /* torch's layer norm: the result, mean and variance of each row */
    PLIM__NORM_GEMMA, /* (1 + w) * x in fp32, operation by operation */
};

/* How the parts of a layer are put together. */
enum plim__shape {
    PLIM__SHAPE_PRE,      /* norm, mixer, norm, feed-forward; residual carried along */
    PLIM__SHAPE_SANDWICH, /* norms before and behind both (Gemma 2 and 3) */
    PLIM__SHAPE_ADD,      /* residuals added by hand (OPT, GPT-2) */
    PLIM__SHAPE_ONE,      /* a layer is one mixer or one feed-forward part (Nemotron-H) */
};

/* A family of model classes that allocate alike. */
struct plim__vllm_family {
    const char *architecture;
    enum plim__norm norm;
    enum plim__shape shape;
    bool holds_gate_up; /* gate_up stays alive until the down projection is done */
    bool scales_embedding;
    const char *source; /* file of the engine */
};

/** plim__vllm_family_of() - the row of the model's class; of the first relative (serving/family.h) that has one
 * when it has none; else the row of most. *known: it is the model's own, or the file names no class. */
const struct plim__vllm_family *plim__vllm_family_of(const struct plim_geometry *g, bool *known);

/**
 * plim__vllm_converted() - the geometry with what --quantization makes of a plain checkpoint.
 * @out: g itself when nothing is converted, else an arena-owned copy. Errors: PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim__vllm_converted(struct plim_arena *arena,
                                                    const struct plim_geometry *g,
                                                    const struct plim_vllm_flags *flags,
                                                    const struct plim_geometry **out,
                                                    struct plim_err *err);

/** plim__vllm_unconverted() - the word of --quantization when it would convert in a way that is not known here. */
const char *plim__vllm_unconverted(const struct plim_geometry *g,
                                   const struct plim_vllm_flags *flags);

struct plim__run {
    const struct plim_vllm_settings *set;
    const struct plim_geometry *g;
    const struct plim_card *card;
    const struct plim__vllm_family *family;
    struct plim_tape *tape;
    uint64_t tokens; /* of the step */
    bool
        profiling; /* the profile run: no cache exists, and torch.compile has nothing compiled yet */
    bool decoding; /* a captured decode step: attention runs, with scratch of its own */
    uint64_t e;    /* bytes of an activation's element */
    uint32_t tp;
    plim_tensor workspace; /* shared by MoE and recurrent kernels; grows, never shrinks */
    uint64_t workspace_bytes;
    plim_tensor marlin_lock; /* made by the first packed linear layer, kept */
    bool recurrent_warm;     /* the first recurrent layer tuned its kernels */
    plim_tensor rope_wide;   /* a rotary table still in fp32 */
    uint64_t rope_bytes;     /* of it in the type of the activations */
    bool moe_seen;
};

/* The hidden states between layers. */
struct plim__stream {
    plim_tensor hidden, residual;
};

/* vllm_linear.c */
bool plim__linear_plain(const struct plim__run *run, const char *part);
plim_tensor plim__linear(struct plim__run *run, uint64_t in, uint64_t out); /* quantized or not */
plim_tensor plim__linear_plain16(struct plim__run *run, uint64_t out);      /* never quantized */
plim_tensor plim__norm(struct plim__run *run, plim_tensor x, uint64_t rows, uint64_t width);
struct plim__stream plim__norm_add(struct plim__run *run, struct plim__stream in, uint64_t width);
void plim__workspace(struct plim__run *run, uint64_t bytes);

/* vllm_mixer.c, vllm_recurrent.c */
plim_tensor plim__mixer(struct plim__run *run, const struct plim_layer *l, plim_tensor x);
plim_tensor plim__recurrent(struct plim__run *run, const struct plim_layer *l, plim_tensor x);

/* vllm_ffn.c */
plim_tensor plim__dense_ffn(struct plim__run *run, uint64_t intermediate, plim_tensor x);
plim_tensor plim__ffn(struct plim__run *run, const struct plim_layer *l, plim_tensor x);

/* vllm_compiled.c */
plim_tensor plim__forward_compiled(struct plim__run *run, uint32_t first, uint32_t end);

/* vllm_mixer.c: scratch of the attention kernel in a decode step; room that a profile run takes for the
 * context that latent attention would expand */
void plim__attention_scratch(struct plim__run *run, const struct plim_layer *l);
void plim__latent_context(struct plim__run *run, const struct plim_layer *l);

/* vllm_ffn.c: widths of the experts as the kernels keep them, on this device */
uint64_t plim__expert_inner(const struct plim__run *run, const struct plim_layer *l);
uint64_t plim__expert_hidden(const struct plim__run *run, const struct plim_layer *l);

/* vllm_forward.c: gives the last hidden states, held once */
plim_tensor plim__forward(struct plim__run *run, uint32_t first, uint32_t end);

/* vllm_sampler.c */
void plim__runner_buffers(struct plim__run *run);
void plim__sampler_state(struct plim__run *run);
void plim__profile(struct plim__run *run, uint32_t first, uint32_t end, uint64_t *forward_peak);

/* vllm_load.c */
PLIM_MUST_USE enum plim_status plim__load(struct plim__run *run, struct plim_arena *arena,
                                          uint64_t *weights, struct plim_err *err);

/* vllm_graph.c */
void plim__graph_memory(struct plim__run *run, struct plim_vllm_start *s);

/* vllm_kv.c */
PLIM_MUST_USE enum plim_status plim__groups(struct plim_arena *arena, const struct plim_geometry *g,
                                            const struct plim_card *card, struct plim_vllm_start *s,
                                            struct plim_err *err);
void plim__plan_cache(struct plim_vllm_start *s);

/** plim__blocks_for() - blocks of all groups that a request of that many tokens takes. */
uint64_t plim__blocks_for(const struct plim_vllm_start *s, uint64_t tokens);

/** plim__prefill_checkpoints() - recurrent layers export their state inside a prefill (prefix caching). */
bool plim__prefill_checkpoints(const struct plim_vllm_settings *set, const struct plim_card *card,
                               enum plim_mixer mixer);

#endif
