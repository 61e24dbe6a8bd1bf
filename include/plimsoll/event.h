/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIMSOLL_EVENT_H
#define PLIMSOLL_EVENT_H

/*
 * One thing that happened to device memory: what the recorder writes into its ring, what a trace file
 * holds, and what an analysis reads.
 *
 *   event    one call that changed device memory, or could have (result says), or a remark between calls
 *   kind     what it did, whatever the function was called; the sign says what it does to device bytes
 *   call     which function it was: an index into the table of names that travels with the events
 *   owner    on whose behalf: a fixed list, because people ask "how much does NCCL hold?"
 *   library  the file that made the call: an index into the table of libraries; 0 for unknown
 *   stack    native frames of the caller: an index into the table of stacks; 0 for none
 *
 * Order: events of a process are numbered without gaps from 1 (seq). Whatever gives memory back is
 * recorded before the real call, so that nobody else's allocation at the same address can come first;
 * whatever takes memory is recorded after it. A release that the driver then refuses is followed by a
 * second event of the same kind and address whose result is not 0: it takes the first one back.
 *
 * Device bytes: after each event, bytes charged += plim_event_charge(event). Adding that up over a
 * trace from its beginning gives what the process holds, without knowing any kind by name.
 *
 * Sizes are bytes, times nanoseconds of CLOCK_MONOTONIC. Host byte order.
 */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * X(name, text, sign). Pinned by order: append only. addr, size, aux of each:
 *
 *   alloc          address, bytes asked for, 0. aux of all charged kinds below: see PLIM_EVENT_PAGES
 *   free           address, bytes asked for when it was allocated (0 when not known), 0
 *   pool_alloc     address, bytes, pool (0: the current one). Not charged: pools are, by pool_grow
 *   pool_free      address, bytes, stream
 *   pool_grow      pool, bytes that its reservation grew by, bytes reserved now
 *   pool_shrink    pool, bytes that its reservation shrank by, bytes reserved now
 *   reserve        address, bytes of address space, 0
 *   unreserve      address, bytes, 0
 *   create         handle, bytes of physical memory, 0
 *   release        handle, bytes given back now (0: still mapped, or another reference), 0
 *   map            address, bytes, handle
 *   unmap          address, bytes, handle. A release follows when it was the last use of the handle
 *   import         address or handle, bytes (0: not known), 0. Somebody else's memory: not charged
 *   close_import   address or handle, bytes, 0
 *   export         address or handle, bytes, 0
 *   host_alloc     host address, bytes pinned, 0
 *   host_free      host address, bytes, 0
 *   managed_alloc  address, bytes asked for, 0. Resident bytes are not known: not charged
 *   managed_free   address, bytes, 0
 *   prefetch       address, bytes, destination device (UINT64_MAX: host)
 *   array_alloc    handle, bytes by its format, 0
 *   array_free     handle, bytes, 0
 *   context        handle, bytes measured, 0
 *   context_end    handle, bytes, 0. Everything that lived in it is given back by events of its own first
 *   module         handle, bytes measured, 0
 *   module_end     handle, bytes, 0
 *   graph          executable, bytes measured at instantiation, upload or first launch, 0
 *   graph_end      executable, bytes, 0
 *   limit          limit's number, bytes measured, value asked for. Grows or (size 0) does not
 *   sample         bytes used on the device by everybody, total bytes, bytes used by this process
 *                  (UINT64_MAX: not known)
 *   note           text offset, bytes of text, 0
 *   fork           pid of the parent, 0, 0. The first event of a forked child
 *   exec           0, 0, 0. The first event of a new program in the same process
 *   exit           0, 0, 0. The program ended in an orderly way
 *   lost           0, number of events lost since the last such event, 0. Made by readers
 */
#define PLIM_EVENT_MAP(X)                                                                          \
    X(NONE, "none", 0)                                                                             \
    X(ALLOC, "alloc", 1)                                                                           \
    X(FREE, "free", -1)                                                                            \
    X(POOL_ALLOC, "pool_alloc", 0)                                                                 \
    X(POOL_FREE, "pool_free", 0)                                                                   \
    X(POOL_GROW, "pool_grow", 1)                                                                   \
    X(POOL_SHRINK, "pool_shrink", -1)                                                              \
    X(RESERVE, "reserve", 0)                                                                       \
    X(UNRESERVE, "unreserve", 0)                                                                   \
    X(CREATE, "create", 1)                                                                         \
    X(RELEASE, "release", -1)                                                                      \
    X(MAP, "map", 0)                                                                               \
    X(UNMAP, "unmap", 0)                                                                           \
    X(IMPORT, "import", 0)                                                                         \
    X(CLOSE_IMPORT, "close_import", 0)                                                             \
    X(EXPORT, "export", 0)                                                                         \
    X(HOST_ALLOC, "host_alloc", 0)                                                                 \
    X(HOST_FREE, "host_free", 0)                                                                   \
    X(MANAGED_ALLOC, "managed_alloc", 0)                                                           \
    X(MANAGED_FREE, "managed_free", 0)                                                             \
    X(PREFETCH, "prefetch", 0)                                                                     \
    X(ARRAY_ALLOC, "array_alloc", 1)                                                               \
    X(ARRAY_FREE, "array_free", -1)                                                                \
    X(CONTEXT, "context", 1)                                                                       \
    X(CONTEXT_END, "context_end", -1)                                                              \
    X(MODULE, "module", 1)                                                                         \
    X(MODULE_END, "module_end", -1)                                                                \
    X(GRAPH, "graph", 1)                                                                           \
    X(GRAPH_END, "graph_end", -1)                                                                  \
    X(LIMIT, "limit", 1)                                                                           \
    X(SAMPLE, "sample", 0)                                                                         \
    X(NOTE, "note", 0)                                                                             \
    X(FORK, "fork", 0)                                                                             \
    X(EXEC, "exec", 0)                                                                             \
    X(EXIT, "exit", 0)                                                                             \
    X(LOST, "lost", 0)

enum plim_event_kind {
#define PLIM__X(name, text, sign) PLIM_EVENT_##name,
    PLIM_EVENT_MAP(PLIM__X)
#undef PLIM__X
    PLIM_EVENT_KINDS
};

/*
 * X(name, text, library). Who asked for the memory. A call belongs to the owner whose `library` begins
 * the file name of the calling object ("libnccl" for libnccl.so.2); "" means that code decides. Pinned
 * by order: append only.
 */
#define PLIM_OWNER_MAP(X)                                                                          \
    X(UNKNOWN, "unknown", "")                                                                      \
    X(APPLICATION, "application", "")                                                              \
    X(OTHER, "other library", "")                                                                  \
    X(CONTEXT, "context", "")                                                                      \
    X(MODULE, "modules", "")                                                                       \
    X(GRAPH, "graphs", "")                                                                         \
    X(TORCH, "torch allocator", "libc10_cuda")                                                     \
    X(TORCH_OTHER, "torch outside its allocator", "libtorch")                                      \
    X(PLUGGABLE, "pluggable allocator", "libplimsoll_alloc")                                       \
    X(CUBLAS, "cuBLAS", "libcublas")                                                               \
    X(CUDNN, "cuDNN", "libcudnn")                                                                  \
    X(CUFFT, "cuFFT", "libcufft")                                                                  \
    X(CURAND, "cuRAND", "libcurand")                                                               \
    X(CUSOLVER, "cuSOLVER", "libcusolver")                                                         \
    X(CUSPARSE, "cuSPARSE", "libcusparse")                                                         \
    X(NCCL, "NCCL", "libnccl")                                                                     \
    X(NVSHMEM, "NVSHMEM", "libnvshmem")                                                            \
    X(TRITON, "Triton", "libtriton")                                                               \
    X(CUDA, "CUDA runtime or driver itself", "libcuda")

enum plim_gpu_owner {
#define PLIM__X(name, text, library) PLIM_OWNER_##name,
    PLIM_OWNER_MAP(PLIM__X)
#undef PLIM__X
    PLIM_OWNERS
};

/* Bits of plim_gpu_event.flags. */
#define PLIM_EVENT_PAGES    1u /* aux is what `size` costs in whole 2 MiB pages: charge that instead */
#define PLIM_EVENT_ESTIMATE 2u /* size was computed or measured by difference, not asked for */
#define PLIM_EVENT_UNKNOWN                                                                         \
    4u /* a release of something whose allocation was not seen: not charged */
#define PLIM_EVENT_RUNTIME                                                                         \
    8u /* recorded at the runtime's level: no driver call was seen below it */
#define PLIM_EVENT_TAIL    16u /* a consequence of the event before it, not a call of its own */
#define PLIM_EVENT_CAPTURE 32u /* made during a graph capture */

#define PLIM_DEVICE_NONE   255u /* plim_gpu_event.device when it does not apply or is not known */
#define PLIM_DURATION_NONE UINT32_MAX /* plim_gpu_event.duration_ns when not measured */

/* 64 bytes. */
struct plim_gpu_event {
    uint64_t seq;         /* 1, 2, ... within the process */
    uint64_t time_ns;     /* CLOCK_MONOTONIC: when a release began, when anything else ended */
    uint64_t addr;        /* by kind, above */
    uint64_t size;        /* bytes, by kind */
    uint64_t aux;         /* by kind */
    uint32_t duration_ns; /* of the real call, or PLIM_DURATION_NONE; releases have none */
    uint32_t thread;      /* the kernel's thread id */
    uint32_t stack;       /* into the table of stacks, 0 for none */
    int32_t result;       /* what the real call returned; 0 is success */
    uint16_t call;        /* into the table of calls */
    uint16_t library;     /* into the table of libraries, 0 for unknown */
    uint8_t kind;         /* enum plim_event_kind */
    uint8_t device;       /* CUDA's number, or PLIM_DEVICE_NONE */
    uint8_t owner;        /* enum plim_gpu_owner */
    uint8_t flags;        /* PLIM_EVENT_* bits */
};

/** plim_event_charge() - device bytes that an event adds (or takes: negative). Any event, also a hostile
 * one; the caller adds with wrap-around. Pure. */
static inline int64_t plim_event_charge(const struct plim_gpu_event *event)
{
    static const int8_t sign[] = {
#define PLIM__X(name, text, value) value,
        PLIM_EVENT_MAP(PLIM__X)
#undef PLIM__X
    };
    if (event->kind >= PLIM_EVENT_KINDS || (event->flags & PLIM_EVENT_UNKNOWN) != 0) {
        return 0;
    }
    int64_t by = sign[event->kind];
    if (event->result != 0) {
        by = by < 0 ? 1
                    : 0; /* a refused release takes back the one before it; refused others are 0 */
    }
    uint64_t bytes = (event->flags & PLIM_EVENT_PAGES) != 0 ? event->aux : event->size;
    return by < 0 ? (int64_t)(0 - bytes) : by > 0 ? (int64_t)bytes : 0;
}

#ifdef __cplusplus
}
static_assert(sizeof(struct plim_gpu_event) == 64, "an event is one cache line");
#else
_Static_assert(sizeof(struct plim_gpu_event) == 64, "an event is one cache line");
#endif
#endif
