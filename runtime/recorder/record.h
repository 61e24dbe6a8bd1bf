/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_RECORDER_RECORD_H
#define PLIM_RECORDER_RECORD_H

/*
 * The recorder: a preloaded object that sees the calls which move device memory. We are guests in
 * somebody else's process:
 *
 *   - Results, errors and outputs of the real call pass through untouched, always.
 *   - Nothing on the way of a call allocates with malloc, prints, takes the loader's lock, or waits
 *     for a reader. Locks are spin locks around a few instructions, never held across a real call.
 *   - A call made from inside the recorder, or from a signal handler that interrupted it, passes through.
 *   - When in doubt the real function is called and something is counted (struct plim_shm_counters).
 *
 * The nouns:
 *
 *   hook     our function with the name of a real one; the list is hooks.def
 *   call     one passage through a hook
 *   level    the driver's (cuMemAlloc_v2) or the runtime's (cudaMalloc), which calls the driver's
 *   live     something that exists on a device and that a call brought there; of a class
 *   site     the return address of the outermost call: who wants the memory
 *
 * Counted once: a call at the runtime's level remembers its site for the driver's calls below it, and
 * records itself only when none of them did (a runtime that was linked statically or simulated).
 *
 * Threads: state belongs to the process; what a thread has of its own is struct plim__thread. After a
 * fork the child finds its state wiped, and starts afresh with a file of its own at its first call.
 */

#include <plimsoll/shm.h>

#include "shm/writer.h"

enum plim__level {
    PLIM__DRIVER,
    PLIM__RUNTIME,
};

/* What a key in the table of live things is: addresses and handles of different sorts may be equal. */
enum plim__class {
    PLIM__FREE_SLOT, /* no entry */
    PLIM__MEMORY,    /* device address; of an allocation, pooled, managed or imported */
    PLIM__RANGE,     /* reserved address space */
    PLIM__MAPPING,   /* a mapped piece of it; extra: handle */
    PLIM__HANDLE,    /* physical memory; extra: references, and mappings << 32 */
    PLIM__HOST,      /* pinned host memory */
    PLIM__ARRAY,
    PLIM__MODULE,
    PLIM__GRAPH,   /* instantiated; extra: 1 when it has run */
    PLIM__POOL,    /* size: bytes reserved when last asked; owner: who charged it first */
    PLIM__CONTEXT, /* handle or PLIM__PRIMARY(device); extra: references */
    PLIM__EXTERNAL,
    PLIM__PAGE, /* 2 MiB shared by small allocations; extra: how many */
};

#define PLIM__PRIMARY(device) ((uint64_t)(unsigned)(device) + 1)

/* 32 bytes. */
struct plim__live {
    uint64_t key;
    uint64_t size; /* bytes */
    uint64_t extra;
    uint16_t library;
    uint8_t cls;   /* enum plim__class */
    uint8_t kind;  /* enum plim_event_kind that brought it; the next kind takes it away */
    uint8_t owner; /* enum plim_gpu_owner */
    uint8_t device;
    uint8_t pad[2];
};

/* Every function of hooks.def has a number; 0 is none. */
#define LOOKUP(level, symbol, since) PLIM__CALL_##symbol,
#define ALIAS(base, symbol, since)
#define HOOK(level, symbol, since, kind, params, args, before, after) PLIM__CALL_##symbol,
enum plim__call_id {
    PLIM__CALL_NONE,
#include "hooks.def"
    PLIM__CALLS
};
#undef HOOK
#undef ALIAS
#undef LOOKUP

struct plim__hook {
    const char *symbol;
    void (*function)(void); /* ours */
    uint16_t since;         /* CUDA version; 0 for the runtime */
    uint8_t level;
    uint8_t kind;
};
extern const struct plim__hook plim__hooks[PLIM__CALLS];

/* One passage through a hook, on the stack. */
struct plim__call {
    void *real;
    uint64_t begin_ns;
    uint64_t used;    /* device bytes used by everybody when a measurement began */
    uint64_t charged; /* of those, by our books */
    uintptr_t site;   /* who wants the memory */
    uintptr_t frame;  /* stack address of that */
    uint64_t fired;   /* kinds recorded below the enclosing call of the runtime, saved */
    int result;
    uint16_t id; /* enum plim__call_id */
    uint8_t level, kind;
    bool outermost; /* of the runtime's level */
    bool measuring;
    bool gave;              /* a release was recorded before the real call */
    uint8_t late_class;     /* a release to be recorded after it, when nobody below did; or 0 */
    uint64_t key;           /* of that release, or of one that is not known */
    struct plim__live gone; /* what was given; cls 0: it was not known */
};

/* What a thread has of its own. Plain data: works before constructors and after destructors. */
struct plim__thread {
    uintptr_t site, frame; /* of the outermost call of the runtime's level */
    uint64_t fired;        /* bits of kinds that were recorded below it */
    uint32_t depth;        /* calls of the runtime's level that this thread is in */
    uint32_t busy;         /* inside the recorder: pass everything through */
    uint64_t given;        /* key of the release that the runtime's level recorded; 0 */
    uint32_t id;           /* the kernel's thread id */
    uint32_t epoch;        /* plim__rec.epoch that id belongs to: a fork changes both */
};
extern __thread struct plim__thread plim__self __attribute__((tls_model("initial-exec")));

enum plim__stacks {
    PLIM__STACKS_NONE,
    PLIM__STACKS_CACHED, /* frames are looked up by site and stack depth */
    PLIM__STACKS_FULL,   /* walked at each call */
};

/* The process's state, one. Written by plim__start and plim__forget only, but for the counters. */
struct plim__recorder {
    struct plim_shm_writer shm;
    uint32_t epoch;
    uint32_t
        below;  /* 0: not known; 1: the runtime calls hooks of the driver's level; 2: it does not */
    int stacks; /* enum plim__stacks */
    bool measure;     /* ask NVML and the driver how much slow calls cost */
    uint32_t devices; /* 0: not known */
    uint32_t parent; /* pid of the process that forked this one after it had started to record; 0 */
    uint32_t contexts[PLIM_SHM_DEVICES]; /* (atomic) contexts that we saw begin */
};
extern struct plim__recorder plim__rec;

/* ---- start.c */

enum {
    PLIM__STATE_NEW,
    PLIM__STATE_STARTING,
    PLIM__STATE_ON,
    PLIM__STATE_OFF,
};

/* The state lives on a page that a fork wipes; NULL until the first call. */
extern uint32_t *plim__state;

bool plim__start_slow(void);

/** plim__on() - true when calls are recorded; starts the recorder at the first call. */
static inline bool plim__on(void)
{
    uint32_t *state = __atomic_load_n(&plim__state, __ATOMIC_ACQUIRE);
    uint32_t now = state == NULL ? PLIM__STATE_NEW : __atomic_load_n(state, __ATOMIC_ACQUIRE);
    return __builtin_expect(now == PLIM__STATE_ON, 1) ||
           (now != PLIM__STATE_OFF && plim__start_slow());
}

uint64_t plim__now(void);

static inline void plim__count(uint64_t *counter)
{
    (void)__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}
#define PLIM__COUNT(name) plim__count(&plim__rec.shm.head->counters.name)

/* ---- real.c */

/** plim__real() - the real function of a hook; NULL when there is none in this process. */
extern void *plim__reals[PLIM__CALLS];
void *plim__real_slow(unsigned call);
static inline void *plim__real(unsigned call)
{
    void *real = __atomic_load_n(&plim__reals[call], __ATOMIC_ACQUIRE);
    return __builtin_expect(real != NULL, 1) ? real : plim__real_slow(call);
}

/** plim__bind() - remember where the real function is; false when it is known to be elsewhere. */
bool plim__bind(unsigned call, void *real);

/** plim__own() - whether an address lies in this object. */
bool plim__own(const void *p);

/** plim__real_dlsym() - dlsym of the C library; plim__find_dlsym() only looks for it. In find.c. */
void *plim__real_dlsym(void *handle, const char *name);
void plim__find_dlsym(void);

/* Functions of the driver that the recorder calls itself. They are not hooked. */
#define PLIM__HELPERS(X)                                                                           \
    X(cuCtxGetDevice)                                                                              \
    X(cuDeviceGetCount)                                                                            \
    X(cuMemGetInfo_v2)                                                                             \
    X(cuMemPoolGetAttribute)                                                                       \
    X(cuDeviceGetMemPool)                                                                          \
    X(cuStreamIsCapturing)                                                                         \
    X(cuDeviceGetPCIBusId)                                                                         \
    X(cudaGetDevice)
enum plim__helper {
#define PLIM__X(symbol) PLIM__HELP_##symbol,
    PLIM__HELPERS(PLIM__X)
#undef PLIM__X
    PLIM__HELPER_COUNT
};
void *plim__helper(enum plim__helper helper);

/* ---- find.c */

/** plim__hook_named() - number of the hook with this exact name, or 0. */
unsigned plim__hook_named(const char *symbol);

/** plim__function() - our function of a hook. */
void *plim__function(unsigned call);

/* ---- live.c: what exists now. Spin locks; each call is one lock and a few probes. */

struct plim__shard;

/** plim__live_lock() - lock the part of the table where the key belongs.
 * @found: its entry, or NULL. Valid until the next change or the unlock. */
struct plim__shard *plim__live_lock(unsigned cls, uint64_t key, struct plim__live **found);
void plim__live_unlock(struct plim__shard *shard);

/** plim__live_add() - add an entry whose key is not there; false when there is no room. */
bool plim__live_add(struct plim__shard *shard, const struct plim__live *entry);
void plim__live_remove(struct plim__shard *shard, struct plim__live *found);

/** plim__live_freed() - whether the key was removed lately and is not live: a second release. */
bool plim__live_freed(const struct plim__shard *shard, unsigned cls, uint64_t key);

/** plim__live_pop() - remove some entry of a device and of one of the classes in the bit mask.
 * @cursor: 0 at first. False when there is none left. */
bool plim__live_pop(unsigned device, uint32_t classes, uint32_t *cursor, struct plim__live *out);

/** plim__live_reset() - forget everything, locks included: in a forked child. */
void plim__live_reset(void);

/* ---- caller.c, stack.c */

/** plim__library() - index of the file that holds a code address, and its owner. 0 when unknown. */
unsigned plim__library(uintptr_t site, unsigned *owner);
void plim__libraries_reset(void);

/** plim__stack() - index of the native stack above the call; 0 when not wanted or no room. */
uint32_t plim__stack(const struct plim__call *call);
void plim__stacks_reset(void);

/* ---- measure.c */

/** plim__used() - bytes used on the current device by everybody; false when the driver won't say. */
bool plim__used(uint64_t *bytes);

/** plim__nvml_used() - bytes that this process uses on a device by NVML, or everybody when *whole. */
bool plim__nvml_used(unsigned device, uint64_t *bytes, bool *whole);

/* ---- account.c: what a call does to the books. Called by hooks.def, before or after the real call. */

unsigned plim__device(const struct plim__call *call);
void plim__took(struct plim__call *call, unsigned cls, uint64_t key, uint64_t size, uint64_t extra);
void plim__gives(struct plim__call *call, unsigned cls, uint64_t key);
void plim__gives_handle(struct plim__call *call, uint64_t handle);
/** plim__settle() - the end of a call: late releases, and those that the driver refused. */
void plim__settle(struct plim__call *call);

struct plim__place {
    int type, id;
};
#define PLIM__ON_DEVICE 1
struct plim__physical {
    int type, handles;
    struct plim__place where;
};
void plim__took_physical(struct plim__call *call, uint64_t handle, uint64_t bytes,
                         const struct plim__physical *props);
void plim__retained(struct plim__call *call, uint64_t handle);
void plim__mapped(struct plim__call *call, uint64_t addr, uint64_t bytes, uint64_t handle);
void plim__unmapped(struct plim__call *call, uint64_t addr, uint64_t bytes);
/** plim__may_fail() - tells of a call that changes nothing in the books, when it failed. */
void plim__may_fail(struct plim__call *call, uint64_t addr, uint64_t bytes);
void plim__exported(struct plim__call *call, unsigned cls, uint64_t key);
void plim__prefetched(struct plim__call *call, uint64_t addr, uint64_t bytes, int device);

/* ---- pools.c */

void plim__took_pooled(struct plim__call *call, uint64_t addr, uint64_t bytes, uint64_t pool,
                       void *stream);
void plim__pool_made(struct plim__call *call, uint64_t pool, const void *props);
void plim__pool_gone(struct plim__call *call, uint64_t pool);
void plim__pool_changed(struct plim__call *call, uint64_t pool);
void plim__pool_current(struct plim__call *call, int device, uint64_t pool);
void plim__pools_reset(void);

/* ---- costs.c: what is measured by difference */

/** plim__count_context() - a context of a device began (1) or ended (-1); how many there are now. */
uint32_t plim__count_context(unsigned device, int by);
void plim__context_begins(struct plim__call *call, int device);
void plim__context_made(struct plim__call *call, uint64_t key, int device);
/** plim__context_noticed() - something came to a device: if we saw no context begin there, the runtime
 * made one by ways of its own, and it is told now. */
void plim__context_noticed(struct plim__call *call, unsigned device);
void plim__context_released(struct plim__call *call, uint64_t key, bool at_once);
void plim__measure(struct plim__call *call);
void plim__measured(struct plim__call *call, unsigned cls, uint64_t key);
void plim__limit_set(struct plim__call *call, uint64_t limit, uint64_t value);
void plim__graph_begins(struct plim__call *call, const void *exec);
void plim__graph_ran(struct plim__call *call, const void *exec);

struct plim__array2 {
    size_t width, height;
    unsigned format, channels;
};
struct plim__array3 {
    size_t width, height, depth;
    unsigned format, channels, flags;
};
void plim__took_array(struct plim__call *call, uint64_t array, uint64_t width, uint64_t height,
                      uint64_t depth, unsigned format, unsigned channels);
void plim__took_mipmap(struct plim__call *call, uint64_t array, const struct plim__array3 *desc,
                       unsigned levels);

struct plim__channels {
    int bits[4]; /* of each channel */
    int format;
};
struct plim__extent {
    size_t width, height, depth;
};
void plim__took_channels(struct plim__call *call, uint64_t array, const struct plim__channels *desc,
                         struct plim__extent extent, unsigned levels);

/* ---- the books themselves, for account.c, pools.c and costs.c */

/* Where a call's event goes on a device; library and owner are the caller's. */
struct plim__who {
    unsigned library, owner, device;
};
struct plim__who plim__who(const struct plim__call *call);

/** plim__skip() - true when the call is recorded below it, or not at all. */
bool plim__skip(struct plim__call *call);

/** plim__tell() - write an event of the call. */
void plim__tell(const struct plim__call *call, const struct plim__who *who, unsigned kind,
                uint64_t addr, uint64_t size, uint64_t aux, unsigned flags);

/** plim__charge() - change the totals of an owner: bytes asked for, device bytes, number. */
void plim__charge(unsigned device, unsigned owner, int64_t live, int64_t charged, int count);

/** plim__charged() - device bytes that the totals of a device hold now, all owners together. */
uint64_t plim__charged(unsigned device);

/** plim__failed() - an event and a count for a call whose result is not 0. */
void plim__failed(struct plim__call *call, const struct plim__who *who, uint64_t size);

/** plim__fresh() - an entry for something that the call brought. */
struct plim__live plim__fresh(const struct plim__who *who, unsigned cls, unsigned kind,
                              uint64_t key, uint64_t size, uint64_t extra);

/** plim__take() - something came: table, totals, event. */
void plim__take(struct plim__call *call, const struct plim__live *live, uint64_t aux,
                unsigned flags);

/** plim__drop() - something went that is out of the table already: totals, event. */
void plim__drop(struct plim__call *call, const struct plim__live *live, unsigned flags);

/* Types passed by value, of the right size and class. */
struct plim__ipc {
    char bytes[64];
};
struct plim__pitched {
    void *p;
    size_t pitch, width, height;
};
struct plim__external {
    int type;
    int pad;
    uint64_t handle[2];
    unsigned long long size;
};
struct plim__part {
    unsigned long long offset, size;
};

#define PLIM__KEY(p) ((uint64_t)(uintptr_t)(p))

#endif
