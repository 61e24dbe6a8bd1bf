/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_OBSERVE_OBSERVATION_H
#define PLIM_OBSERVE_OBSERVATION_H

/*
 * Everything that is known of this machine's device memory at one moment: the whole ledger.
 *
 *   sample      what drivers and /proc say (device/sample.h): devices, uses, processes
 *   allocator   what a framework's caching allocator in one process says of one device
 *   owner       what a recorded process holds on one device on somebody's behalf (plimsoll/event.h)
 *   note        what a process says that it is working on: a request and its shape (docs/howto/attach.md)
 *   engine      what a serving engine says of itself at its /metrics
 *   component   bytes that an engine's log gave to one part: weights, KV cache, graphs ...
 *   happening   something that happened since the observation before: a start, an exit, an XID ...
 *
 * Each source is optional. A figure counts only when its bit in `valid` is set: unknown is not 0.
 * Identities: those of device/sample.h for devices; for an allocator
 * allocated <= active <= reserved, slack = reserved - allocated; and for the uses of a process
 * counted = allocators' reserved + owners outside + not known.
 * Figures and their units are the tables below; JSON, metrics and history are expanded from them.
 * Sizes in bytes, times in nanoseconds. Threads: plain data.
 */

#include "device/sample.h"

#include <plimsoll/event.h>

#define PLIM_NO_DEVICE UINT32_MAX

/* X(NAME, JSON key, kind): figures of an allocator. kind: GAUGE now, TOTAL since the process
 * started. */
#define PLIM_ALLOCATOR_FIGURE_MAP(X)                                                               \
    X(ALLOCATED, "allocated_bytes", GAUGE) /* handed out */                                        \
    X(ACTIVE, "active_bytes", GAUGE)       /* handed out or waiting for events of streams */       \
    X(REQUESTED, "requested_bytes", GAUGE) /* what callers asked for */                            \
    X(RESERVED, "reserved_bytes", GAUGE)   /* all segments */                                      \
    X(INACTIVE_SPLIT, "inactive_split_bytes", GAUGE) /* stranded: free pieces of used segments */  \
    X(PEAK_ALLOCATED, "peak_allocated_bytes", GAUGE)                                               \
    X(PEAK_RESERVED, "peak_reserved_bytes", GAUGE)                                                 \
    X(SEGMENTS, "segments", GAUGE)                                                                 \
    X(RETRIES, "alloc_retries", TOTAL) /* a request was served only after the cache was emptied */ \
    X(OOMS, "ooms", TOTAL)                                                                         \
    X(DEVICE_ALLOCS, "device_allocs", TOTAL)                                                       \
    X(DEVICE_FREES, "device_frees", TOTAL)

enum plim_allocator_figure {
#define PLIM__X(name, key, kind) PLIM_ALLOCATOR_##name,
    PLIM_ALLOCATOR_FIGURE_MAP(PLIM__X)
#undef PLIM__X
    PLIM_ALLOCATOR_FIGURES
};

/* X(NAME, JSON key, kind, scale): figures of an engine, one meaning for all engines.
 * Values are doubles: counts, ratios of 1, seconds. An engine that does not tell leaves it out. */
#define PLIM_ENGINE_FIGURE_MAP(X)                                                                  \
    X(RUNNING, "requests_running", GAUGE)                                                          \
    X(WAITING, "requests_waiting", GAUGE)                                                          \
    X(SWAPPED, "requests_swapped", GAUGE)                                                          \
    X(KV_USAGE, "kv_usage_ratio", GAUGE)        /* of the KV pool, 0 to 1 */                       \
    X(KV_CAPACITY, "kv_capacity_tokens", GAUGE) /* of the whole pool */                            \
    X(KV_CACHED, "kv_evictable_ratio", GAUGE)   /* of the pool: kept for reuse, can go */          \
    X(PREEMPTIONS, "preemptions", TOTAL)        /* or retractions */                               \
    X(PROMPT_TOKENS, "prompt_tokens", TOTAL)                                                       \
    X(GENERATION_TOKENS, "generation_tokens", TOTAL)                                               \
    X(REQUESTS, "requests_finished", TOTAL)                                                        \
    X(REJECTED, "requests_rejected", TOTAL)                                                        \
    X(PREFIX_QUERIES, "prefix_queried_tokens", TOTAL)                                              \
    X(PREFIX_HITS, "prefix_hit_tokens", TOTAL)                                                     \
    X(ASLEEP, "asleep", GAUGE) /* 1: its memory is given back (sleep mode) */                      \
    X(MAX_CONTEXT, "max_context_tokens", GAUGE)

enum plim_engine_figure {
#define PLIM__X(name, key, kind) PLIM_ENGINE_FIGURE_##name,
    PLIM_ENGINE_FIGURE_MAP(PLIM__X)
#undef PLIM__X
    PLIM_ENGINE_FIGURES
};

/* X(NAME, text) */
#define PLIM_ENGINE_KIND_MAP(X)                                                                    \
    X(UNKNOWN, "unknown")                                                                          \
    X(VLLM, "vllm")                                                                                \
    X(SGLANG, "sglang")                                                                            \
    X(TGI, "tgi")                                                                                  \
    X(LLAMACPP, "llama.cpp")                                                                       \
    X(TRITON, "triton")                                                                            \
    X(TRTLLM, "tensorrt-llm")

enum plim_engine_kind {
#define PLIM__X(name, text) PLIM_ENGINE_KIND_##name,
    PLIM_ENGINE_KIND_MAP(PLIM__X)
#undef PLIM__X
    PLIM_ENGINE_KINDS
};

/* X(NAME, text): parts of an engine's memory, as its log tells them. */
#define PLIM_COMPONENT_MAP(X)                                                                      \
    X(WEIGHTS, "weights")                                                                          \
    X(KV_CACHE, "kv_cache")                                                                        \
    X(GRAPHS, "graphs")                                                                            \
    X(ACTIVATIONS, "activations")                                                                  \
    X(OTHER, "other")

enum plim_component {
#define PLIM__X(name, text) PLIM_COMPONENT_##name,
    PLIM_COMPONENT_MAP(PLIM__X)
#undef PLIM__X
    PLIM_COMPONENTS
};

struct plim_allocator_now {
    uint32_t pid;
    uint64_t start_ticks; /* of the process: with the pid it names it for ever */
    uint32_t device;      /* index into sample.devices; NO_DEVICE: not known which */
    uint32_t ordinal;     /* the device's number in the process */
    int32_t rank;         /* of the job, -1: none */
    uint64_t told_ns;     /* when the process told it, since 1970 */
    bool stale;           /* the process has not told anything for three of its periods */
    uint64_t valid;       /* bit for each figure */
    uint64_t figure[PLIM_ALLOCATOR_FIGURES];
};

struct plim_owner_now {
    uint32_t pid;
    uint64_t start_ticks;
    uint32_t device, ordinal;
    uint8_t owner;     /* enum plim_gpu_owner */
    bool outside;      /* not the framework's allocator */
    uint64_t charged;  /* device bytes now */
    uint64_t peak;     /* highest of it */
    uint64_t failures; /* calls that the driver refused, so far */
};

#define PLIM_ENGINE_WORKERS 16

/* One rank of one model that a server serves: a page may tell of several. */
struct plim_note_now {
    uint32_t pid;
    uint64_t start_ticks;
    uint64_t since_ns; /* since 1970 */
    char
        text[464]; /* one JSON object, {"request_id": ..., "shape": ...}; as the process wrote it */
};

struct plim_engine_now {
    enum plim_engine_kind kind;
    char name[64];   /* as configured, or host:port */
    char model[128]; /* "" unknown */
    char rank[16];   /* data-parallel rank, "" none */
    uint32_t pid;    /* the process that answers; 0 unknown */
    uint32_t workers;
    uint32_t worker
        [PLIM_ENGINE_WORKERS]; /* pids of its processes that use a device, ascending: the server's
                                             own or its children, whatever their rank */
    bool up;                   /* it answered, or is known from its log alone */
    uint64_t told_ns;
    uint32_t restarts; /* since it was first asked: its totals began anew */
    uint64_t valid;
    double figure[PLIM_ENGINE_FIGURES];
    uint64_t component_valid;
    uint64_t component[PLIM_COMPONENTS]; /* bytes on each of its devices */
};

/* X(NAME, text): what happens. */
#define PLIM_HAPPENING_MAP(X)                                                                      \
    X(STARTED, "process_started") /* it began to use a device */                                   \
    X(ENDED, "process_ended")                                                                      \
    X(XID, "xid")                                                                                  \
    X(OOM, "oom") /* a process was refused memory */                                               \
    X(DEVICE_LOST, "device_lost")                                                                  \
    X(DEVICE_BACK, "device_back")                                                                  \
    X(DRIVER, "driver_restarted")                                                                  \
    X(DEPLOYED, "deployed") /* a note of the user's: a new version, a changed setting */           \
    X(INCIDENT, "incident") /* a bundle was finished */                                            \
    X(CLOCK, "clock_stepped")                                                                      \
    X(ENGINE_UP, "engine_up")                                                                      \
    X(ENGINE_DOWN, "engine_down")                                                                  \
    X(ASLEEP, "engine_asleep")                                                                     \
    X(AWAKE, "engine_awake")

enum plim_happening_kind {
#define PLIM__X(name, text) PLIM_HAPPENED_##name,
    PLIM_HAPPENING_MAP(PLIM__X)
#undef PLIM__X
    PLIM_HAPPENING_KINDS
};

struct plim_happening {
    enum plim_happening_kind kind;
    uint64_t time_ns; /* since 1970 */
    uint32_t device;  /* or NO_DEVICE */
    uint32_t pid;     /* or 0 */
    uint64_t start_ticks;
    uint64_t value; /* XID: its number; OOM: bytes asked for, 0 unknown; ENDED: nanoseconds it lived
                       on the device */
    char text[120]; /* name of the process, of the engine, of the bundle; the note's text */
};

struct plim_observation {
    struct plim_sample sample;
    uint64_t mono_ns; /* CLOCK_BOOTTIME: for rates and slopes; sample.time_ns may step */
    PLIM_VEC(struct plim_allocator_now) allocators; /* order: pid, ordinal */
    PLIM_VEC(struct plim_owner_now) owners;         /* order: pid, ordinal, owner */
    PLIM_VEC(struct plim_note_now)
    notes;                                    /* the newest of each process that holds, or else that
                                             ended since the observation before; order: pid */
    PLIM_VEC(struct plim_engine_now) engines; /* order: as configured */
    PLIM_VEC(struct plim_happening) happenings; /* order: time */
};

/* The books of one use (a process on a device):
 * counted = allocated + slack + outside + unknown. */
struct plim_use_books {
    bool told;          /* the process, or its recorder, tells anything of this device */
    uint64_t allocated; /* of its allocator: handed out */
    uint64_t slack;     /* of its allocator: reserved and not handed out */
    uint64_t stranded;  /* of the slack: free pieces of segments that are in use */
    uint64_t outside;   /* recorded owners outside the allocator */
    uint64_t unknown;   /* the rest */
};

/** plim_observation_books() - what a use consists of. What its process tells beyond the bytes that the
 * driver counts is cut, the allocator's last: the two are not of quite the same moment. */
struct plim_use_books plim_observation_books(const struct plim_observation *o,
                                             const struct plim_process_use *use);

/* X(NAME, key): where each byte of a device is. */
#define PLIM_LEDGER_PART_MAP(X)                                                                    \
    X(LIVE, "live_bytes")             /* handed out by allocators */                               \
    X(STRANDED, "stranded_bytes")     /* free pieces of segments that are in use */                \
    X(RELEASABLE, "releasable_bytes") /* the rest of what allocators have */                       \
    X(OUTSIDE, "outside_bytes")       /* of the same processes, outside their allocators */        \
    X(OTHERS, "others_bytes")         /* of processes that tell nothing */                         \
    X(UNKNOWN, "unknown_bytes")       /* of nobody who is listed */                                \
    X(RESERVED, "reserved_bytes")     /* by driver and firmware */                                 \
    X(FREE, "free_bytes")

enum plim_ledger_part {
#define PLIM__X(name, key) PLIM_LEDGER_##name,
    PLIM_LEDGER_PART_MAP(PLIM__X)
#undef PLIM__X
    PLIM_LEDGER_PARTS
};

/** plim_observation_ledger() - the parts of a device's total; they add up to it. False: the driver does
 * not tell what is used. Cost: O(uses x allocators). */
bool plim_observation_ledger(const struct plim_observation *o, uint32_t device,
                             uint64_t out[PLIM_LEDGER_PARTS]);
const char *plim_ledger_part_key(enum plim_ledger_part part);

void plim_observation_fini(struct plim_observation *o);

/** plim_observation_reset() - empty, keeping its storage. */
void plim_observation_reset(struct plim_observation *o);

/** plim_observation_check() - whether the identities above hold and nothing is impossible. */
bool plim_observation_check(const struct plim_observation *o);

#endif
