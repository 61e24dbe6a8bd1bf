/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_VLLM_H
#define PLIM_SERVING_VLLM_H

/*
 * A start of vLLM: what the engine makes of its flags, what it loads and profiles, and the KV cache it then
 * plans. Each step is the engine's own, in its order:
 *
 *   settings   flags with the engine's defaults filled in for this card and model
 *   baseline   free memory after context and library handles, before the weights
 *   requested  ceil(total * utilization); the start is refused when less is free
 *   load       weights and the runner's state, played tensor by tensor on the allocator model
 *   profile    one forward pass of max_num_batched_tokens tokens and the sampler on max_num_seqs rows
 *   consumed   baseline - free afterwards: everything that stays
 *   transient  peak of the profile - what stays
 *   graphs     estimate of what CUDA graphs will take
 *   available  requested - consumed - transient - graphs
 *   group      layers that share a block table; a block holds one page of each layer of the widest group
 *
 * Source: vllm 0.33.0, file and function at each rule; measured starts in tests/data/plan/.
 * Threads: pure; everything is in the caller's arena.
 */

#include "serving/card.h"
#include "serving/geometry.h"
#include "serving/kv.h"
#include "serving/vllm_flags.h"

/* Who starts the engine: defaults of the batch depend on it. */
enum plim_vllm_usage {
    PLIM_VLLM_LLM,   /* the LLM class: offline inference */
    PLIM_VLLM_SERVE, /* vllm serve */
};

/* Linear layers as the engine runs them. */
enum plim_vllm_linear {
    PLIM_VLLM_PLAIN,     /* weights as they are */
    PLIM_VLLM_FP8,       /* activations are quantized for each call: w8a8 */
    PLIM_VLLM_FP8_BLOCK, /* the same with block scales */
    PLIM_VLLM_MARLIN,    /* packed weights, 16-bit activations */
};

/* Flags with defaults filled in. */
struct plim_vllm_settings {
    enum plim_vllm_usage usage;
    bool v2; /* model runner V2 */
    bool eager;
    bool compiled;             /* torch.compile: the default without enforce_eager */
    bool graphs_full;          /* CUDA graphs of whole decode steps */
    bool graphs_piecewise;     /* and of mixed batches, cut at attention */
    uint32_t max_capture;      /* largest captured batch */
    uint32_t n_captures;       /* number of captured sizes */
    double utilization;        /* of total memory */
    uint64_t kv_bytes;         /* --kv-cache-memory-bytes; 0: not given */
    uint64_t blocks_override;  /* --num-gpu-blocks-override; 0: not given */
    uint64_t max_model_len;    /* tokens; with auto_len the model's own */
    bool auto_len;             /* --max-model-len -1 */
    uint64_t too_long;         /* the model's own length when a longer one was asked for, else 0 */
    uint64_t batched_tokens;   /* --max-num-batched-tokens */
    uint64_t seqs;             /* --max-num-seqs */
    uint64_t in_flight_tokens; /* of steps that overlap: enters sliding windows */
    uint32_t block_size;       /* tokens, before hybrid models raise it */
    bool block_given;
    bool prefix_caching;
    bool chunked_prefill;
    bool hybrid_manager;  /* windows are saved */
    bool estimate_graphs; /* VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS */
    bool sleep_mode;
    bool lora;
    uint32_t loras, lora_rank;
    struct plim_placement at;
    struct plim_kv_options kv;
    enum plim_dtype dtype; /* of activations */
    enum plim_vllm_linear linear;
    uint32_t dp;
};

/* One group of layers, as the KV cache manager sees it. */
struct plim_vllm_group {
    enum plim_kv_kind kind;
    uint32_t layers;
    uint32_t block_size;     /* tokens */
    uint64_t page_bytes;     /* of a block of one layer, padding included */
    uint64_t padded_bytes;   /* of page_bytes, padding */
    uint64_t request_blocks; /* that one request of max_model_len needs */
    uint32_t window;
};

enum plim_vllm_refusal {
    PLIM_VLLM_STARTS,
    PLIM_VLLM_NO_FREE,    /* less free at the start than requested */
    PLIM_VLLM_NO_LOAD,    /* out of memory while loading */
    PLIM_VLLM_NO_PROFILE, /* out of memory in the profile run */
    PLIM_VLLM_NO_BLOCKS,  /* nothing left for cache blocks */
    PLIM_VLLM_NO_LENGTH,  /* max_model_len does not fit in the cache */
    PLIM_VLLM_NO_AUTO,    /* not even one token fits */
    PLIM_VLLM_NO_CACHE,   /* the cache as ordered exceeds the device */
    PLIM_VLLM_NO_SETTING, /* the engine refuses the combination of flags */
    PLIM_VLLM_REFUSAL_COUNT,
};

struct plim_vllm_start {
    struct plim_vllm_settings settings;
    enum plim_vllm_refusal refusal;
    uint64_t failed_bytes;   /* out of memory: the request */
    const char *failed_step; /* and what the engine was doing; static */
    int64_t outside;         /* in: memory the engine takes outside the allocator, as calibrated */
    uint64_t baseline_free;  /* bytes */
    uint64_t baseline_torch; /* of it gone to the allocator: library workspaces */
    uint64_t requested;
    uint64_t weights;      /* "Model loading took" */
    uint64_t state;        /* the runner's own tensors */
    uint64_t load_tail;    /* taken from the device by loading but in no tensor */
    uint64_t load_peak;    /* most allocated while loading */
    uint64_t forward_peak; /* above what was loaded, before the sampler */
    uint64_t profile_peak; /* above what was loaded, the sampler included */
    uint64_t kept;         /* tensors that the profile run leaves */
    uint64_t consumed;     /* baseline_free - free after the profile */
    uint64_t transient;    /* peak that goes away again */
    uint64_t graph_estimate;
    uint64_t graph_error;           /* how far that may be off */
    uint64_t graph_actual;          /* what the graphs will really hold */
    int64_t available;              /* bytes for the KV cache */
    struct plim_vllm_group *groups; /* [n_groups] */
    uint32_t n_groups;
    uint64_t block_bytes;    /* of a block over all layers of a group */
    uint64_t request_blocks; /* of one request of max_model_len, all groups */
    uint64_t num_blocks;
    uint64_t max_model_len; /* after auto-fit */
    uint64_t fitting_len;   /* longest that would fit; 0: none */
    double concurrency;     /* requests of max_model_len */
    uint64_t kv_tokens;
    uint64_t
        activation_error; /* how far transient and kept may be off, bytes; 0: as the engine does it */
    const char *activation_source;
};

/**
 * plim_vllm_play() - the whole start.
 * @out: its member `outside` is read, the rest is written.
 * @settings: of the allocator in the engine's process (PYTORCH_ALLOC_CONF), "" for none.
 * Errors: PLIM_E_USAGE flags that contradict each other; those of the geometry, weights and KV functions;
 * PLIM_E_NOMEM. A refusal of the engine is a result, not an error.
 * Cost: O(layers) requests to the allocator model: a few milliseconds.
 */
PLIM_MUST_USE enum plim_status
plim_vllm_play(struct plim_arena *arena, const struct plim_geometry *g,
               const struct plim_card *card, const struct plim_vllm_flags *flags,
               const char *settings, struct plim_vllm_start *out, struct plim_err *err);

#endif
