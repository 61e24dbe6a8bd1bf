/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HEAP_SNAPSHOT_H
#define PLIM_HEAP_SNAPSHOT_H

/*
 * A memory snapshot: what was live at the end (a heap for each device) and how it came to be (a trace
 * for each device). src/format builds one; everything behind only reads it.
 *
 * Each key of the source may be absent. Absent is a NO_ID, a NO_STACK or a false `has_` bit, never 0.
 * Owned by whoever called plim_snapshot_init; pure data otherwise. Threads: one writer or many readers.
 */

#include "base/intern.h"
#include "heap/heap.h"
#include "heap/outside.h"

/* X(name, text as PyTorch writes it). Order is fixed: recorded in our own trace format. */
#define PLIM_ACTION_MAP(X)                                                                         \
    X(UNKNOWN, "unknown")                                                                          \
    X(ALLOC, "alloc")                                                                              \
    X(FREE_REQUESTED, "free_requested")                                                            \
    X(FREE_COMPLETED, "free_completed")                                                            \
    X(SEGMENT_ALLOC, "segment_alloc")                                                              \
    X(SEGMENT_FREE, "segment_free")                                                                \
    X(SEGMENT_MAP, "segment_map")                                                                  \
    X(SEGMENT_UNMAP, "segment_unmap")                                                              \
    X(SNAPSHOT, "snapshot")                                                                        \
    X(OOM, "oom")                                                                                  \
    X(ANNOTATE, "annotate")

enum plim_action {
#define PLIM__X(name, text) PLIM_ACTION_##name,
    PLIM_ACTION_MAP(PLIM__X)
#undef PLIM__X
    PLIM_ACTION_COUNT
};

/* One entry of a device's trace, 40 bytes. */
struct plim_event {
    uint64_t addr; /* block or segment address; for OOM the device's free bytes */
    uint64_t
        size; /* ALLOC, FREE_*: requested bytes; SEGMENT_*: driver bytes; OOM: rounded request */
    uint64_t time_us; /* Unix microseconds; 0 when the trace has no times (plim_trace.has_times) */
    uint32_t stack;   /* stack id, or PLIM_NO_STACK */
    uint32_t note;    /* index into plim_snapshot.notes, or PLIM_NO_ID */
    uint16_t stream;  /* index into plim_snapshot.streams */
    uint16_t pool;    /* index into plim_snapshot.pools, or PLIM_NO_POOL when not recorded */
    uint8_t action;   /* enum plim_action */
    uint8_t pad[3];
};

#define PLIM_NO_POOL           UINT16_MAX
#define PLIM_FREE_NOT_RECORDED UINT64_MAX /* addr of an OOM event without device_free */

/* The two texts an event may carry; most carry neither. */
struct plim_note {
    uint32_t compile_context; /* interned, or PLIM_NO_ID */
    uint32_t user_metadata;   /* interned, or PLIM_NO_ID */
};

struct plim_trace {
    PLIM_VEC(struct plim_event) events; /* oldest first */
    bool has_times;
    uint64_t by_action[PLIM_ACTION_COUNT]; /* number of events of each kind */
};

/* One device: its heap at the end and its trace. */
struct plim_device {
    struct plim_heap heap;
    struct plim_trace trace;
    struct plim_outside outside; /* what the allocator does not know, when a recorder was there */
};

struct plim_annotation { /* external_annotations: a named span's start or end */
    uint32_t name;       /* interned */
    uint32_t device;
    uint64_t time_us;
    bool end;
};

/* allocator_settings, as far as known. */
struct plim_settings {
    bool known;    /* the snapshot has the key */
    uint32_t conf; /* interned PYTORCH_CUDA_ALLOC_CONF text, or PLIM_NO_ID */
    bool expandable_segments;
    uint64_t max_split_size; /* UINT64_MAX = unlimited */
    double gc_threshold;     /* garbage_collection_threshold; 0 = off */
    bool has_roundup;        /* roundup_power2_divisions was there */
    uint64_t roundup[16];    /* divisions for 1 MiB, 2 MiB ... 32 GiB and above */
};

/* Pinned host memory (2.14). */
struct plim_host {
    bool known;
    uint64_t reserved;  /* bytes of host segments */
    uint64_t allocated; /* bytes handed out */
    uint32_t segments;
};

/* Something inconsistent in the source, found while reading or checking. */
struct plim_finding {
    uint32_t device;
    uint32_t where; /* interned: "segments[12].blocks[3]" */
    uint32_t text;  /* interned: "blocks add up to 10 MiB, the segment has 20 MiB" */
};

/* A key of the source that has no meaning here; its values were skipped. At most 64 are kept. */
struct plim_unknown_key {
    uint32_t key;   /* interned */
    uint64_t times; /* how often it was seen */
};

/* What the blocks of a snapshot are. */
enum plim_level {
    PLIM_LEVEL_BLOCKS,    /* what a caching allocator handed out */
    PLIM_LEVEL_DRIVER,    /* what a program got from the driver, call by call */
    PLIM_LEVEL_ALLOCATOR, /* what a caching allocator got from the driver: its cache is in them */
};

struct plim_snapshot {
    enum plim_level level;
    struct plim_intern strings;
    struct plim_stacks stacks;
    PLIM_VEC(int64_t) streams;           /* stream index -> handle as recorded */
    PLIM_VEC(struct plim_pool_id) pools; /* pool index -> id; [0] is (0,0) */
    PLIM_VEC(struct plim_note) notes;
    PLIM_VEC(struct plim_device) devices; /* device index -> device */
    PLIM_VEC(struct plim_annotation) annotations;
    PLIM_VEC(struct plim_finding) findings;
    uint64_t findings_dropped; /* more than the list may hold */
    struct plim_settings settings;
    struct plim_host host;
    uint32_t
        capture; /* interned: what the maker of the snapshot adds (format/capture.h), or PLIM_NO_ID */
    bool has_traces;                                /* device_traces was there */
    PLIM_VEC(struct plim_unknown_key) unknown_keys; /* keys that this reader has no meaning for */
    char layout[48];       /* for people: "torch 2.1-2.3 dict", "list of segments" */
    char container[64];    /* for people: "gzip, pickle protocol 4" */
    uint64_t source_bytes; /* bytes read, after decompression */
};

/** plim_snapshot_init() - empty, with the default pool. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_snapshot_init(struct plim_snapshot *snapshot,
                                                  struct plim_err *err);
void plim_snapshot_fini(struct plim_snapshot *snapshot);

/** plim_snapshot_stream()/pool() - index of a stream handle or pool id, added when new.
 * Errors: PLIM_E_NOMEM; PLIM_E_BUDGET beyond 65,534 different ones. Cost: O(number of them), with the
 * last hit remembered by the caller where it matters. */
PLIM_MUST_USE enum plim_status plim_snapshot_stream(struct plim_snapshot *snapshot, int64_t handle,
                                                    uint16_t *index, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim_snapshot_pool(struct plim_snapshot *snapshot,
                                                  struct plim_pool_id id, uint16_t *index,
                                                  struct plim_err *err);

/** plim_snapshot_device() - the device of that index, added (with all below it) when new.
 * Errors: PLIM_E_NOMEM; PLIM_E_BUDGET for an index of 4096 or more. The pointer is valid until the next call. */
PLIM_MUST_USE enum plim_status plim_snapshot_device(struct plim_snapshot *snapshot, uint64_t index,
                                                    struct plim_device **out, struct plim_err *err);

/** plim_snapshot_finding() - note an inconsistency; at most 200 are kept, the rest counted. */
void plim_snapshot_finding(struct plim_snapshot *snapshot, uint32_t device, const char *where,
                           const char *fmt, ...) PLIM_PRINTF(4, 5);

const char *plim_action_text(enum plim_action action);

#endif
