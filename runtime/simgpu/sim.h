/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_H
#define SIM_H

/*
 * Simulated GPU: the nouns inside the shared object that stands in for CUDA and NVML.
 *
 *   card     what a GPU model is: totals, capability, multiprocessors, cost of a context
 *   books    who uses how many bytes of which device; shared by all processes of a run
 *   page     2 MiB, the unit in which device memory is handed out and addresses are counted
 *   range    a piece of a device's address space: a large allocation, a slab, a reservation
 *   slab     one page shared by allocations of at most 1 MiB
 *   handle   physical memory of the virtual memory management calls, counted by references
 *   tick     the unit of simulated time in which recorded events become complete
 *
 * Device memory is address space that no access is allowed to: it costs no host memory, and a stray
 * host access faults. The numbers of enum sim_code are CUDA's, which driver and runtime share.
 *
 * Threads: everything behind `sim_lock` unless it says otherwise; the books have their own lock,
 * shared by processes, and taken inside `sim_lock` only. Only captures call malloc.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_API __attribute__((visibility("default")))

#define SIM_MAX_DEVICES 16
#define SIM_PAGE_SHIFT  21
#define SIM_PAGE        ((uint64_t)1 << SIM_PAGE_SHIFT)
#define SIM_SLAB_MAX    ((uint64_t)1 << 20) /* larger requests take whole pages; see sim_mem.c */

/* Result codes, with names and texts: codes.def. */
enum sim_code {
#define SIM_CODE(symbol, number, runtime_name, driver_name, text) SIM_##symbol = (number),
#include "codes.def"
#undef SIM_CODE
};

/* Calls that are counted, logged, injected into and given a cost: calls.def. */
enum sim_call {
#define SIM_CALL(symbol, name, base_ns, page_ns) SIM_CALL_##symbol,
#include "calls.def"
#undef SIM_CALL
    SIM_CALL_COUNT
};

struct sim_card {
    char key[24];           /* name on the command line, "a100-80gb" */
    char name[64];          /* as the driver reports it */
    uint64_t total;         /* bytes as cudaMemGetInfo gives them */
    uint64_t nvml_total;    /* bytes as NVML gives them; a little more */
    uint64_t context;       /* bytes a process pays for having a context */
    int cc_major, cc_minor; /* compute capability */
    int sms;                /* multiprocessors */
    int sm_threads;         /* resident threads of a multiprocessor */
    int smem_sm;            /* shared memory of a multiprocessor, bytes */
    int smem_optin;         /* most shared memory of a block, bytes */
    int l2_bytes;
    int bus_bits;
};

/* ---- set-up (sim_init.c) */

enum sim_policy {
    SIM_ASCENDING,
    SIM_DESCENDING,
    SIM_FIRST_FIT
};
enum sim_clock {
    SIM_CLOCK_CALLS,
    SIM_CLOCK_MANUAL,
    SIM_CLOCK_WALL
};

struct sim_config {
    _Atomic int policy;         /* enum sim_policy */
    _Atomic int clock;          /* enum sim_clock */
    _Atomic uint64_t event_lag; /* ticks */
    _Atomic uint64_t kernel_ns; /* real time that a kernel runs; 0: kernels take no time */
    uint64_t graph_node;        /* bytes charged for each node of an instantiated graph */
    uint64_t max_mappings;      /* accessible mappings of a process */
    bool cost;                  /* the cost model adds simulated time */
    bool log;
};

extern struct sim_config sim_config;
extern pthread_mutex_t sim_lock;
extern _Atomic int sim_ready; /* 1 when set up, 2 in a child forked after that */

/** sim_start() - set up on first use; cheap afterwards. SIM_OK, or SIM_E_INIT in a forked child. */
int sim_start_slow(void);
static inline int sim_start(void)
{
    return __builtin_expect(atomic_load_explicit(&sim_ready, memory_order_acquire) == 1, 1)
               ? 0
               : sim_start_slow();
}

/** sim_set() - change a setting while running; the keys are those of the environment, lower case,
 * without the prefix. SIM_E_VALUE for an unknown key or a bad value. */
int sim_set(const char *key, const char *value);

/** sim_parse_size() - "24GiB", "80GB", "512M", "1.5GiB", "1048576" to bytes; false when it is none. */
bool sim_parse_size(const char *text, uint64_t *bytes);

/** sim_parse_time() - "250us", "1.5ms", "40000" (ns) to nanoseconds; units ns, us, ms, s. False when it is none. */
bool sim_parse_time(const char *text, uint64_t *ns);

/** sim_parse_cards() - "a100-80gb", "24GiB", "a100-80gb@40GiB", "h100-80gb*2,24GiB" to cards.
 * Returns their number, 0 when the text is wrong. */
int sim_parse_cards(const char *text, struct sim_card cards[SIM_MAX_DEVICES]);

/* ---- books shared by processes (sim_books.c) */

/** sim_books_open() - attach to the books, from the file named or private when NULL. */
int sim_books_open(const char *path, const struct sim_card *cards, int n);
/** sim_books_created() - this process made the books, so it also sets what belongs to devices. */
bool sim_books_created(void);
int sim_device_count(void);
const struct sim_card *sim_card(int device);

/** sim_charge() - take bytes of a device for this process; SIM_E_NOMEM when they are not there. */
int sim_charge(int device, uint64_t bytes);
void sim_uncharge(int device, uint64_t bytes);
/** sim_context() - make sure that this process has a context; charges it the first time. */
int sim_context(int device);
bool sim_has_context(int device);
/** sim_context_drop() - forget the context and everything this process used on the device. */
void sim_context_drop(int device);

struct sim_usage {
    uint64_t total, nvml_total; /* of the card */
    uint64_t external;          /* held by others by configuration */
    uint64_t used;              /* by all processes, contexts included */
    uint64_t mine, my_context;  /* of this process; mine includes the context */
    uint64_t peak;              /* highest `used` so far */
};
void sim_usage(int device, struct sim_usage *out);

struct sim_process {
    int pid;
    uint64_t bytes;
};
/** sim_processes() - live processes with a context; writes at most n, returns how many there are. */
unsigned sim_processes(int device, struct sim_process *out, unsigned n);
void sim_set_external(int device, uint64_t bytes);
void sim_set_limit(int device, uint64_t bytes);
/** sim_missing() - note that the program asked for something that is not simulated. */
void sim_missing(const char *name);
void sim_books_forked(void);

/* ---- a call (sim_trace.c) */

/** sim_enter() - what every call that touches a device does first: set-up, sticky errors, injected
 * failures, one tick. Returns the code to fail with, or SIM_OK. */
int sim_enter(enum sim_call call);
/** sim_leave() - log the call and add its simulated cost. Returns code. */
int sim_leave(enum sim_call call, int device, uint64_t addr, uint64_t size, uint64_t arg, int code);
int sim_fail_parse(const char *text);
int sim_log_open(const char *path);
void sim_log_forked(void);
int sim_ret(int code); /* runtime calls: remember the thread's last error */

uint64_t sim_now(void);
void sim_advance_to(uint64_t tick);
uint64_t sim_wall_ns(void); /* real time and what the cost model added */
uint64_t sim_real_ns(void);
/** sim_sleep_until() - sleep until that real time; at once when it is over. Not under sim_lock. */
void sim_sleep_until(uint64_t real_ns);

/* ---- address space (sim_bits.c, sim_ranges.c, sim_space.c) */

/* A set of small integers with the next and the previous member in O(levels). */
#define SIM_BITS_LEVELS 5
struct sim_bits {
    uint64_t *level[SIM_BITS_LEVELS];
    uint64_t size;
};
int sim_bits_init(struct sim_bits *bits, uint64_t size);
void sim_bits_set(struct sim_bits *bits, uint64_t i);
void sim_bits_clear(struct sim_bits *bits, uint64_t i);
uint64_t sim_bits_prev(const struct sim_bits *bits, uint64_t i); /* greatest member <= i */
uint64_t sim_bits_next(const struct sim_bits *bits, uint64_t i); /* least member >= i */
#define SIM_NONE UINT64_MAX

/* Free ranges of numbers, merged with their neighbours. O(log n), n ranges. */
struct sim_ranges {
    uint32_t root;
    uint32_t seed;
};
int sim_ranges_add(struct sim_ranges *set, uint64_t start, uint64_t len);
/** sim_ranges_take() - the lowest place of len numbers, or SIM_NONE. */
uint64_t sim_ranges_take(struct sim_ranges *set, uint64_t len);
/** sim_ranges_cut() - remove [start, start + len), which lies in one range. */
void sim_ranges_cut(struct sim_ranges *set, uint64_t start, uint64_t len);
bool sim_ranges_has(const struct sim_ranges *set, uint64_t start, uint64_t len);
uint64_t sim_ranges_total(const struct sim_ranges *set);

enum sim_kind {
    SIM_KIND_LARGE,
    SIM_KIND_SLAB,
    SIM_KIND_RESERVE,
    SIM_KIND_CHUNK
};

/* One range of a device's address space, in pages. */
struct sim_range {
    uint64_t page, pages;
    uint64_t requested; /* bytes asked for, when SIM_KIND_LARGE */
    void *owner;        /* struct sim_slab, or struct sim_mempool of a chunk */
    uint32_t self;      /* own index */
    uint32_t live;      /* SIM_KIND_CHUNK: allocations in it; SIM_KIND_RESERVE: mappings in it */
    uint8_t kind;       /* enum sim_kind */
};

int sim_space_init(int devices);
bool sim_is_device(const void *p);
int sim_device_of(const void *p); /* device of an address of ours; -1 otherwise */
/** sim_space_take() - address space of `pages` pages at a multiple of `align` pages, by policy. */
struct sim_range *sim_space_take(int device, uint64_t pages, uint64_t align, enum sim_kind kind);
void sim_space_give(int device, struct sim_range *range);
/** sim_space_find() - the range that holds the address, or NULL. */
struct sim_range *sim_space_find(const void *p, int *device);
uint64_t sim_space_addr(int device, uint64_t page);

/* ---- objects of a fixed size with stable addresses (sim_pool.c) */

struct sim_pool {
    uint32_t item; /* bytes, a multiple of 8 */
    uint32_t n;    /* handed out so far */
    uint32_t free; /* first free one, or 0 */
    char *base;    /* index 1 is the first */
};
#define SIM_POOL(type)                                                                             \
    {                                                                                              \
        .item = (uint32_t)((sizeof(type) + 15) & ~(size_t)15)                                      \
    }
void *sim_pool_take(struct sim_pool *pool, uint32_t *index); /* zeroed; NULL when memory is out */
void sim_pool_give(struct sim_pool *pool, uint32_t index);
static inline void *sim_pool_at(const struct sim_pool *pool, uint32_t index)
{
    return pool->base + (size_t)(index - 1) * pool->item;
}

/* ---- memory (sim_mem.c, sim_vmm.c, sim_mempool.c, sim_host.c) */

int sim_malloc(int device, uint64_t bytes, void **out);
int sim_free(void *p);
/** sim_extent() - base and size of the driver allocation that holds p. */
int sim_extent(const void *p, uint64_t *base, uint64_t *size);

int sim_reserve(int device, uint64_t bytes, uint64_t align, uint64_t *out);
int sim_unreserve(uint64_t addr, uint64_t bytes);
int sim_create(int device, uint64_t bytes, uint64_t *handle);
int sim_create_host(uint64_t bytes, uint64_t *handle);
int sim_release(uint64_t handle);
int sim_retain_at(uint64_t addr, uint64_t *handle);
int sim_retain(uint64_t handle);
int sim_handle_info(uint64_t handle, int *device, uint64_t *bytes);
int sim_map(uint64_t addr, uint64_t bytes, uint64_t offset, uint64_t handle);
int sim_unmap(uint64_t addr, uint64_t bytes);
int sim_access(uint64_t addr, uint64_t bytes, bool on);
int sim_mapping_extent(const void *p, uint64_t *base, uint64_t *size);

struct sim_mempool;
struct sim_mempool *sim_mempool_default(int device);
struct sim_mempool *sim_mempool_current(int device);
void sim_mempool_use(int device, struct sim_mempool *pool);
struct sim_mempool *sim_mempool_new(int device);
int sim_mempool_destroy(struct sim_mempool *pool);
int sim_mempool_alloc(struct sim_mempool *pool, uint64_t bytes, void **out);
int sim_mempool_trim(struct sim_mempool *pool, uint64_t keep);
int sim_mempool_set(struct sim_mempool *pool, int attribute, const void *value);
int sim_mempool_get(struct sim_mempool *pool, int attribute, void *value);
int sim_mempool_device(const struct sim_mempool *pool);
/** sim_mempool_synced() - a synchronisation: pools above their threshold give memory back. */
void sim_mempool_synced(int device);
int sim_chunk_free(struct sim_range *chunk, void *p);

enum sim_host_kind {
    SIM_HOST_NONE,
    SIM_HOST_PINNED,
    SIM_HOST_REGISTERED,
    SIM_HOST_MANAGED
};
int sim_host_alloc(uint64_t bytes, enum sim_host_kind kind, void **out);
int sim_host_free(void *p, enum sim_host_kind kind);
int sim_host_register(void *p, uint64_t bytes);
int sim_host_unregister(void *p);
enum sim_host_kind sim_host_find(const void *p, uint64_t *base, uint64_t *size);
/** sim_host_prefetch() - move managed memory to a device (charged) or to the host (device -1). */
int sim_host_prefetch(const void *p, int device);

/** sim_copy() - between host ranges really; from the device zeros; into the device nothing. */
void sim_copy(void *to, const void *from, uint64_t bytes);
void sim_fill(void *to, int value, uint64_t bytes);

/* ---- streams, events, graphs (sim_stream.c, sim_graph.c) */

struct sim_capture;
struct sim_graph;
struct sim_node;

/* A growing list of nodes. */
struct sim_nodes {
    struct sim_node **at;
    uint32_t n, room;
};

struct sim_stream {
    uint64_t magic;
    uint64_t id;
    uint64_t due;     /* tick at which all work so far is complete */
    uint64_t busy_ns; /* real time until which its kernels run; 0: it had none that take time */
    struct sim_capture *capture;
    struct sim_stream *next_captured;
    struct sim_nodes tail; /* captured nodes that the next one depends on */
    uint32_t self;
    int device;
    int priority;
    unsigned flags;
};

struct sim_event {
    uint64_t magic;
    uint64_t due;
    uint64_t busy_ns; /* of the stream at the last record */
    uint64_t time_ns; /* wall and simulated time of the last record, for elapsed times */
    uint64_t capture; /* id of the capture it was recorded in, 0 for none */
    struct sim_nodes tail;
    uint32_t self;
    unsigned flags;
    bool recorded;
};

int sim_stream_new(int device, unsigned flags, int priority, struct sim_stream **out);
int sim_stream_destroy(struct sim_stream *stream);
/** sim_stream() - the stream of a handle; small handles are the default streams of the device. */
struct sim_stream *sim_stream(void *handle);
/** sim_stream_run() - kernels were put on a stream: with a kernel time it is busy for so much longer. */
void sim_stream_run(struct sim_stream *stream, uint32_t kernels);
int sim_stream_query(struct sim_stream *stream);
/** sim_stream_sync(), sim_device_sync(), sim_event_sync() - simulated time goes there at once. @until: the real
 * time until which the caller sleeps after it has left sim_lock; written on success only. */
int sim_stream_sync(struct sim_stream *stream, uint64_t *until);
int sim_stream_wait(struct sim_stream *stream, struct sim_event *event);
int sim_device_sync(int device, uint64_t *until);

int sim_event_new(unsigned flags, struct sim_event **out);
int sim_event_destroy(struct sim_event *event);
int sim_event_record(struct sim_event *event, struct sim_stream *stream);
int sim_event_query(struct sim_event *event);
int sim_event_sync(struct sim_event *event, uint64_t *until);
int sim_event_elapsed(struct sim_event *from, struct sim_event *to, float *ms);

enum sim_node_kind {
    SIM_NODE_KERNEL,
    SIM_NODE_MEMCPY,
    SIM_NODE_MEMSET,
    SIM_NODE_HOST,
    SIM_NODE_EMPTY
};

/** sim_work() - something was put on a stream: a node while capturing, else nothing to do.
 * Returns false when the stream is capturing, so that the caller does not do it now. */
bool sim_work(struct sim_stream *stream, enum sim_node_kind kind);
/** sim_unsafe() - a call that a capture forbids; SIM_E_CAPTURE_UNSUPPORTED, and it is invalidated. */
int sim_unsafe(void);

/** sim_capture_fault() - invalidate a capture; returns the code of the call that did it. */
int sim_capture_fault(struct sim_capture *capture);
int sim_capture_begin(struct sim_stream *stream, struct sim_graph *into, int mode);
int sim_capture_end(struct sim_stream *stream, struct sim_graph **out);
int sim_capture_status(const struct sim_stream *stream); /* 0 none, 1 active, 2 invalidated */
uint64_t sim_capture_id(const struct sim_stream *stream);
struct sim_graph *sim_capture_graph(const struct sim_stream *stream);
void sim_capture_join(struct sim_stream *stream, struct sim_capture *capture);
struct sim_capture *sim_capture_by_id(uint64_t id);
int sim_capture_mode(int mode); /* sets the thread's, returns the former */
int sim_nodes_set(struct sim_nodes *nodes, struct sim_node *const *from, uint32_t n, bool add);

int sim_graph_new(struct sim_graph **out);
int sim_graph_destroy(struct sim_graph *graph);
int sim_graph_add(struct sim_graph *graph, enum sim_node_kind kind, struct sim_node *const *deps,
                  uint32_t n, struct sim_node **out);
uint32_t sim_graph_nodes(const struct sim_graph *graph, struct sim_node **out, uint32_t room);
const struct sim_nodes *sim_node_deps(const struct sim_node *node);
enum sim_node_kind sim_node_kind(const struct sim_node *node);
int sim_graph_instantiate(struct sim_graph *graph, void **exec);
int sim_graph_exec_destroy(void *exec);
uint32_t sim_graph_exec_kernels(const void *exec);

/* ---- threads, devices, kernels (sim_device.c) */

int sim_current(void); /* current device of the thread */
int sim_set_current(int device);
int sim_attribute(int device, int attribute);
const char *sim_kernel_name(const void *function);
int sim_kernel_arch(const void *function, int device);
/** sim_module_new()/sim_function_new() - what a library registers while it loads. Own lock. */
void **sim_module_new(const void *wrapper);
void sim_function_new(void **module, const void *host, const char *name);

int sim_named_function(void *module, const char *name, void **out);
int sim_occupancy(int device, int threads, size_t shared);
void *sim_context_handle(int device);
void sim_uuid(int device, char out[16]);
int sim_pid(void);
/** sim_driver_symbol() - address of an exported driver function, or NULL. O(log n). */
void *sim_driver_symbol(const char *symbol);

extern _Atomic uint64_t sim_launches;

#endif
