/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_OOMTEXT_WORDS_H
#define PLIM_FORMAT_OOMTEXT_WORDS_H

/*
 * The words of out-of-memory grammars: fields that a pattern can capture, families of programs, roles
 * of a text in a log, and meanings. See oomtext.h for the nouns.
 */

/* What a pattern can capture. X(name, word used in patterns, meaning) */
#define PLIM_OOM_FIELD_MAP(X)                                                                      \
    X(REQUEST, "request", "bytes asked for when it failed")                                        \
    X(TOTAL, "total", "bytes of the device")                                                       \
    X(FREE, "free", "free bytes of the device, as the driver says")                                \
    X(ALLOCATED, "allocated", "bytes handed out by the framework's allocator")                     \
    X(CACHED, "cached", "reserved minus allocated (PyTorch 1.0 to 1.3)")                           \
    X(RESERVED, "reserved", "bytes the allocator holds from the driver")                           \
    X(UNALLOCATED, "unallocated", "reserved but unallocated (PyTorch 2.1 and later)")              \
    X(PRIVATE_FREE, "private", "free bytes of private pools, contained in `allocated` as printed") \
    X(ALLOWED, "allowed", "a cap that somebody set")                                               \
    X(LIMIT, "limit", "limit of a pool, arena, quota or watermark")                                \
    X(IN_USE, "in_use", "bytes in use under that limit")                                           \
    X(OTHER, "other", "allocations outside the pool (MPS)")                                        \
    X(OWN_PROCESS, "own", "whole use of this process, by the driver's account")                    \
    X(PROCESS, "process", "use of the process named by `pid`")                                     \
    X(PID, "pid", "a process id")                                                                  \
    X(DEVICE, "device", "ordinal of the device")                                                   \
    X(LARGEST_FREE, "largest_free", "largest free block of an arena")                              \
    X(PLAN, "plan", "bytes a compiled program needs in all")                                       \
    X(EXCEEDS, "exceeds", "by how much a limit is exceeded")                                       \
    X(DESIRED, "desired", "bytes an engine wants for itself")                                      \
    X(UTILIZATION, "utilization", "fraction of the device an engine may use")                      \
    X(KV_AVAILABLE, "kv_available", "bytes left for the KV cache")                                 \
    X(KV_NEEDED, "kv_needed", "bytes of KV cache needed for one request")                          \
    X(KV_TOKENS, "kv_tokens", "tokens the KV cache holds")                                         \
    X(MODEL_LEN, "model_len", "longest sequence, tokens")                                          \
    X(FITTING_LEN, "fitting_len", "longest sequence that would fit, tokens")                       \
    X(WEIGHTS, "weights", "bytes of weights")                                                      \
    X(NON_TORCH, "non_torch", "bytes outside PyTorch, by the engine's account")                    \
    X(ACTIVATION, "activation", "peak bytes of activations, by the engine's account")              \
    X(GRAPH, "graph", "bytes of CUDA graphs, by the engine's account")                             \
    X(TOKENS, "tokens", "tokens asked for")                                                        \
    X(BUFFER, "buffer", "bytes of a model buffer on one device")                                   \
    X(BUFFER_MIN, "buffer_min", "smallest of those (kept by the scanner)")                         \
    X(BUFFER_MAX, "buffer_max", "largest of those (kept by the scanner)")                          \
    X(HOST_USED, "host_used", "bytes of host memory in use")                                       \
    X(HOST_TOTAL, "host_total", "bytes of host memory")                                            \
    X(HOST_SHARE, "host_share", "per cent of host memory in use")                                  \
    X(HOST_RSS, "rss", "resident bytes of one process")                                            \
    X(STAT_ALLOCATED, "stat_allocated", "allocated bytes in pasted statistics")                    \
    X(STAT_PEAK, "stat_peak", "peak of allocated bytes in pasted statistics")                      \
    X(STAT_RESERVED, "stat_reserved", "reserved bytes in pasted statistics")                       \
    X(STAT_INACTIVE, "stat_inactive",                                                              \
      "inactive split (non-releasable) bytes in pasted statistics")                                \
    X(STAT_OOMS, "stat_ooms", "failures counted in pasted statistics")                             \
    X(STAT_RETRIES, "stat_retries", "retries counted in pasted statistics")                        \
    X(SMI_USED, "smi_used", "used bytes in pasted nvidia-smi output")                              \
    X(SMI_TOTAL, "smi_total", "total bytes in pasted nvidia-smi output")                           \
    X(SMI_PROCESS, "smi_process", "use of one process in pasted nvidia-smi output")                \
    X(GROWTH_FIRST, "growth_first", "first of a series of sizes")                                  \
    X(GROWTH_LAST, "growth_last", "last of that series")                                           \
    X(COUNT, "count", "any other number")                                                          \
    X(CODE, "code", "an error code")

enum plim_oom_field {
#define PLIM__X(name, word, meaning) PLIM_OOM_##name,
    PLIM_OOM_FIELD_MAP(PLIM__X)
#undef PLIM__X
    PLIM_OOM_FIELD_COUNT
};

/* Whose text it is. A clause counts only inside an event of its family (ANY: inside all). */
#define PLIM_OOM_FAMILY_MAP(X)                                                                     \
    X(ANY)                                                                                         \
    X(TORCH)                                                                                       \
    X(ASYNC)                                                                                       \
    X(MPS)                                                                                         \
    X(DRIVER)                                                                                      \
    X(ENGINE)                                                                                      \
    X(GGML)                                                                                        \
    X(XLA)                                                                                         \
    X(TF)                                                                                          \
    X(ORT)                                                                                         \
    X(TRT)                                                                                         \
    X(CUPY)                                                                                        \
    X(RMM)                                                                                         \
    X(JULIA)                                                                                       \
    X(PADDLE)                                                                                      \
    X(NCCL)                                                                                        \
    X(VGPU)                                                                                        \
    X(HOST)                                                                                        \
    X(OTHER)

enum plim_oom_family {
#define PLIM__X(name) PLIM_OOM_FAMILY_##name,
    PLIM_OOM_FAMILY_MAP(PLIM__X)
#undef PLIM__X
};

enum plim_oom_role {
    PLIM_OOM_FAILURE,
    PLIM_OOM_CLAUSE,
    PLIM_OOM_NEAR,
    PLIM_OOM_SESSION,
    PLIM_OOM_HEADER,
    PLIM_OOM_TABLE,  /* only below a header */
    PLIM_OOM_BESIDE, /* only on a line that holds a failure */
};

/*
 * What a text means. X(name, weight): of several failures that are reported together, the one with
 * the largest weight is the cause, the others are its echoes; 0 = a circumstance, never a failure.
 */
#define PLIM_OOM_MEANING_MAP(X)                                                                    \
    X(NOTHING, 0)                                                                                  \
    /* Refused by an allocator that prints its books. */                                           \
    X(TORCH_OOM, 80)                                                                               \
    X(TORCH_PREEMPTIVE, 85)                                                                        \
    X(TORCH_IMPOSSIBLE, 90)                                                                        \
    X(XPU_BLOCK_LIMIT, 90)                                                                         \
    X(ASYNC_OOM, 80)                                                                               \
    X(MPS_OOM, 80)                                                                                 \
    X(XLA_OOM, 70)                                                                                 \
    X(XLA_ONCHIP, 85)                                                                              \
    X(XLA_HBM, 75)                                                                                 \
    X(XLA_RUNTIME, 75)                                                                             \
    X(OWN_POOL, 70)                                                                                \
    X(TF_OOM, 70)                                                                                  \
    X(TF_WARNING, 16)                                                                              \
    X(ORT_OOM, 70)                                                                                 \
    X(ORT_LIMIT, 75)                                                                               \
    X(TRT_OOM, 55)                                                                                 \
    X(TRT_REQUEST, 60)                                                                             \
    X(TRT_TACTIC, 15)                                                                              \
    X(TRT_WORKSPACE, 16)                                                                           \
    X(LONE_REQUEST, 58)                                                                            \
    X(BUFFER_LIMIT, 82)                                                                            \
    X(BUFFER_COUNT, 82)                                                                            \
    X(NOT_FITTING, 70)                                                                             \
    X(SCENE_FULL, 61)                                                                              \
    X(JULIA_OOM, 75)                                                                               \
    X(CUPY_OOM, 70)                                                                                \
    X(CUPY_OOM_TOTAL, 70)                                                                          \
    X(PADDLE_OOM, 70)                                                                              \
    X(GGML_OOM, 60)                                                                                \
    X(METAL_OOM, 60)                                                                               \
    X(METAL_OVERCOMMIT, 16)                                                                        \
    X(RMM_OOM, 60)                                                                                 \
    X(RMM_POOL_LIMIT, 75)                                                                          \
    X(DEVICE_POOL_LIMIT, 75)                                                                       \
    /* Refused by an engine's own budget. */                                                       \
    X(VLLM_NO_BLOCKS, 85)                                                                          \
    X(VLLM_MODEL_LEN, 85)                                                                          \
    X(VLLM_STARTUP_FREE, 85)                                                                       \
    X(VLLM_PROFILING, 85)                                                                          \
    X(VLLM_WARMUP, 82)                                                                             \
    X(VLLM_LOAD, 79)                                                                               \
    X(ENGINE_UNBALANCED, 85)                                                                       \
    X(ENGINE_START, 90)                                                                            \
    X(SGLANG_START, 85)                                                                            \
    X(SGLANG_RUN, 82)                                                                              \
    X(ENGINE_POOL_FULL, 82)                                                                        \
    X(CONTEXT_FULL, 60)                                                                            \
    X(WORKSPACE_FULL, 82)                                                                          \
    X(TGI_PREFILL, 85)                                                                             \
    X(OLLAMA_HOST, 78)                                                                             \
    X(ENGINE_FIT, 75)                                                                              \
    X(GGML_ADDRESS_SPACE, 75)                                                                      \
    X(VGPU_LIMIT, 88)                                                                              \
    X(SETTINGS_CONFLICT, 85)                                                                       \
    /* Refused by the driver or a library, without figures. */                                     \
    X(CUMEM_OOM, 65)                                                                               \
    X(CONTEXT_OOM, 65)                                                                             \
    X(NCCL_OOM, 66)                                                                                \
    X(LIBRARY_OOM, 50)                                                                             \
    X(TEGRA_OOM, 68)                                                                               \
    X(HIDDEN_ASSERT, 60)                                                                           \
    X(EXPANDABLE_ASSERT, 60)                                                                       \
    X(PREALLOC_OOM, 20)                                                                            \
    X(RUNNER_OOM, 30)                                                                              \
    X(DRIVER_OOM, 40)                                                                              \
    X(GENERIC_OOM, 10)                                                                             \
    /* The host's memory. */                                                                       \
    X(HOST_ALLOC, 76)                                                                              \
    X(HOST_PINNED, 57)                                                                             \
    X(HOST_MANAGED, 72)                                                                            \
    X(BROWSER_HEAP, 76)                                                                            \
    X(HOST_KILLED, 45)                                                                             \
    X(HOST_OOM_KILLER, 46)                                                                         \
    X(HOST_CGROUP, 48)                                                                             \
    X(HOST_RAY, 74)                                                                                \
    X(HOST_SHM, 73)                                                                                \
    X(HOST_PAGEFILE, 74)                                                                           \
    X(WORKER_DIED, 25)                                                                             \
    X(HOST_GROWTH, 78)                                                                             \
    X(DEVICE_GROWTH, 62)                                                                           \
    /* Not a shortage of memory. */                                                                \
    X(KERNEL_RESOURCE, 76)                                                                         \
    X(ILLEGAL_ACCESS, 61)                                                                          \
    X(DEVICE_BUSY, 71)                                                                             \
    X(DISK, 71)                                                                                    \
    X(OTHER_ERROR, 58)                                                                             \
    X(RECOVERED, 15)                                                                               \
    X(CUMEM_INVALID, 35)                                                                           \
    /* Circumstances. */                                                                           \
    X(AT_LOAD, 0)                                                                                  \
    X(AT_BUILD, 0)                                                                                 \
    X(AT_PROFILE, 0)                                                                               \
    X(AT_CAPTURE, 0)                                                                               \
    X(AT_PIN, 0)                                                                                   \
    X(AT_INIT, 0)                                                                                  \
    X(AT_BACKWARD, 0)                                                                              \
    X(AT_OPTIMIZER, 0)                                                                             \
    X(AT_ATTENTION, 0)                                                                             \
    X(AT_SDPA, 0)                                                                                  \
    X(AT_LOGITS, 0)                                                                                \
    X(AT_VAE, 0)                                                                                   \
    X(AT_GATHER, 0)                                                                                \
    X(AT_SAVE, 0)                                                                                  \
    X(ENGINE_VLLM, 0)                                                                              \
    X(ENGINE_SGLANG, 0)                                                                            \
    X(ENGINE_COMFY, 0)                                                                             \
    X(ENGINE_DIFFUSERS, 0)                                                                         \
    X(ENGINE_DEEPSPEED, 0)                                                                         \
    X(ENGINE_KV, 0)                                                                                \
    X(ON_WINDOWS, 0)                                                                               \
    X(ON_WSL, 0)                                                                                   \
    X(SLEEP_MODE, 0)                                                                               \
    X(EXPANDABLE_ON, 0)                                                                            \
    X(SPLIT_SET, 0)                                                                                \
    X(ADVICE_PRINTED, 0)                                                                           \
    X(CHECKPOINTING_ON, 0)                                                                         \
    X(EAGER_ON, 0)                                                                                 \
    X(EMPTY_CACHE_TRIED, 0)                                                                        \
    X(RESTARTED, 0)                                                                                \
    X(METAL_FAILED, 0)                                                                             \
    X(NOT_OOMKILLED, 0)                                                                            \
    X(GROWTH_STATED, 20)                                                                           \
    X(SMI_SEEN, 0)                                                                                 \
    X(STATS_SEEN, 0)

enum plim_oom_meaning {
#define PLIM__X(name, weight) PLIM_OOM_MEANS_##name,
    PLIM_OOM_MEANING_MAP(PLIM__X)
#undef PLIM__X
    PLIM_OOM_MEANING_COUNT
};

/*
 * One grammar. Pattern language:
 *   text      itself, case ignored; a blank is any run of blanks or newlines
 *   {f:type}  capture field f; types: size (number and unit), bytes (integer, commas allowed, an
 *             optional "bytes" behind), int, real, mib and gib (a number without its unit), shape
 *             ("[2,3,4] and type float", as bytes)
 *   [..]      may be missing        <a|b>  one of        *  at most 200 bytes, as few as possible
 *   ~         any run, also none, of blanks and of the marks " ' ` : = , ( ) | \
 *   #         a run of digits       ^  start of the line       $  end of the line     \x  literal x
 * The anchor is the first run of plain text; fields before it are read backwards from it. Rows whose
 * anchor has fewer than PLIM__OOM_ANCHOR_LEAST bytes are only looked for on lines that are read anyway
 * (short inputs, and near other findings): so the search over large logs stays fast.
 */
struct plim_oom_row {
    const char *format; /* id in the output; for a clause: versions that print it, or NULL */
    enum plim_oom_family family;
    enum plim_oom_role role;
    enum plim_oom_meaning meaning;
    const char *pattern;
};

#endif
