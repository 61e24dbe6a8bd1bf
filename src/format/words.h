/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_WORDS_H
#define PLIM_FORMAT_WORDS_H

/*
 * Every word that a snapshot uses with a fixed meaning: the keys of its dicts, the actions of trace
 * entries, the states of blocks. They are interned first, in this order, so that the id of a string
 * is its place in this list and "which key is this" is an integer switch.
 * Source: torch/csrc/cuda/Module.cpp (THCPModule_memorySnapshot) of torch 1.13 to 2.14.
 */

/* X(name, text). At most 64 keys, because a set of keys is kept as a 64-bit mask. */
#define PLIM_KEY_MAP(X)                                                                            \
    X(ACTION, "action") /* trace entry */                                                          \
    X(ADDR, "addr")                                                                                \
    X(DEVICE_FREE, "device_free")                                                                  \
    X(SIZE, "size")                                                                                \
    X(STREAM, "stream")                                                                            \
    X(TIME_US, "time_us")                                                                          \
    X(COMPILE_CONTEXT, "compile_context")                                                          \
    X(USER_METADATA, "user_metadata")                                                              \
    X(POOL_ID, "pool_id")                                                                          \
    X(FRAMES, "frames")                                                                            \
    X(CPP_FRAMES, "cpp_frames")                                                                    \
    X(NAME, "name") /* frame */                                                                    \
    X(FILENAME, "filename")                                                                        \
    X(LINE, "line")                                                                                \
    X(FX_NODE_OP, "fx_node_op")                                                                    \
    X(FX_NODE_NAME, "fx_node_name")                                                                \
    X(FX_NODE_TARGET, "fx_node_target")                                                            \
    X(FX_NODE_INFO, "fx_node_info")                                                                \
    X(FX_ORIGINAL_TRACE, "fx_original_trace")                                                      \
    X(DEVICE, "device") /* segment */                                                              \
    X(ADDRESS, "address")                                                                          \
    X(TOTAL_SIZE, "total_size")                                                                    \
    X(ALLOCATED_SIZE, "allocated_size")                                                            \
    X(ACTIVE_SIZE, "active_size")                                                                  \
    X(REQUESTED_SIZE, "requested_size")                                                            \
    X(SEGMENT_TYPE, "segment_type")                                                                \
    X(SEGMENT_POOL_ID, "segment_pool_id")                                                          \
    X(IS_EXPANDABLE, "is_expandable")                                                              \
    X(BLOCKS, "blocks")                                                                            \
    X(STATE, "state") /* block */                                                                  \
    X(HISTORY, "history")                                                                          \
    X(REAL_SIZE, "real_size")                                                                      \
    X(STAGE, "stage")       /* annotation */                                                       \
    X(SEGMENTS, "segments") /* top level */                                                        \
    X(DEVICE_TRACES, "device_traces")                                                              \
    X(ALLOCATOR_SETTINGS, "allocator_settings")                                                    \
    X(EXTERNAL_ANNOTATIONS, "external_annotations")                                                \
    X(HOST_SEGMENTS, "host_segments")                                                              \
    X(HOST_TRACES, "host_traces")                                                                  \
    X(PLIMSOLL, "plimsoll")   /* what attach adds: format/capture.h */                             \
    X(ALLOCATED, "allocated") /* host segment */                                                   \
    X(ACTIVE, "active")                                                                            \
    X(CONF, "PYTORCH_CUDA_ALLOC_CONF") /* allocator_settings */                                    \
    X(ALLOC_CONF, "PYTORCH_ALLOC_CONF")                                                            \
    X(MAX_SPLIT_SIZE, "max_split_size")                                                            \
    X(GC_THRESHOLD, "garbage_collection_threshold")                                                \
    X(EXPANDABLE_SEGMENTS, "expandable_segments")                                                  \
    X(PINNED_THREADS, "pinned_num_register_threads")                                               \
    X(RELEASE_LOCK, "release_lock_on_cudamalloc")                                                  \
    X(PINNED_REGISTER, "pinned_use_cuda_host_register")                                            \
    X(STREAM_REUSE, "graph_capture_record_stream_reuse")                                           \
    X(MAX_ROUND_THRESHOLD, "max_round_threshold")                                                  \
    X(MAX_CACHED_SIZE, "max_cached_size")                                                          \
    X(ROUNDUP, "roundup_power2_divisions")

/* X(name, text): values with a fixed meaning, beside the actions of heap/snapshot.h. */
#define PLIM_VALUE_WORD_MAP(X)                                                                     \
    X(ACTIVE_ALLOCATED, "active_allocated")                                                        \
    X(ACTIVE_PENDING_FREE, "active_pending_free")                                                  \
    X(ACTIVE_AWAITING_FREE, "active_awaiting_free")                                                \
    X(INACTIVE, "inactive")                                                                        \
    X(SMALL, "small")                                                                              \
    X(LARGE, "large")                                                                              \
    X(NOT_AVAILABLE, "N/A")                                                                        \
    X(EMPTY, "")                                                                                   \
    X(START, "START")                                                                              \
    X(END, "END")

/* Ids of interned strings. Actions come behind the words, in the order of enum plim_action. */
enum plim_word {
#define PLIM__X(name, text) PLIM_K_##name,
    PLIM_KEY_MAP(PLIM__X)
#undef PLIM__X
    PLIM_KEY_COUNT,
    PLIM__WORD_LAST_KEY = PLIM_KEY_COUNT - 1,
#define PLIM__X(name, text) PLIM_W_##name,
    PLIM_VALUE_WORD_MAP(PLIM__X)
#undef PLIM__X
    PLIM_WORD_COUNT
};

#define PLIM_KEY_BIT(name) (UINT64_C(1) << PLIM_K_##name)

_Static_assert(PLIM_KEY_COUNT <= 64, "a set of keys is a 64-bit mask");

#endif
