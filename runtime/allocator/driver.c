/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's functions behind the engine's table. */

#include "driver.h"

#include <dlfcn.h>
#include <string.h>

#define EVENTS          256 /* unused ones that are kept */
#define PEERS           PLIM_CUDA_DEVICES
#define CAPTURE_RELAXED 2
#define EVENT_NO_TIMING 2
#define CAPTURE_ACTIVE  1

struct location {
    int type; /* 1: device */
    int id;
};

struct alloc_prop { /* CUmemAllocationProp, 32 bytes */
    int type;       /* 1: pinned */
    int handle_types;
    struct location location;
    void *win32;
    unsigned char compression;
    unsigned char rdma;
    unsigned short usage;
    unsigned char reserved[4];
};

struct access_desc { /* CUmemAccessDesc, 12 bytes */
    struct location location;
    int flags; /* 3: read and write */
};

_Static_assert(sizeof(struct alloc_prop) == 32, "the driver's layout");
_Static_assert(sizeof(struct access_desc) == 12, "the driver's layout");

/* X(field, exported name, arguments) */
#define CUDA_FUNCTIONS(X)                                                                          \
    X(init, "cuInit", (unsigned))                                                                  \
    X(device_get, "cuDeviceGet", (int *, int))                                                     \
    X(device_count, "cuDeviceGetCount", (int *))                                                   \
    X(attribute, "cuDeviceGetAttribute", (int *, int, int))                                        \
    X(peer, "cuDeviceCanAccessPeer", (int *, int, int))                                            \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                          \
    X(drop, "cuDevicePrimaryCtxRelease_v2", (int))                                                 \
    X(push, "cuCtxPushCurrent_v2", (void *))                                                       \
    X(pop, "cuCtxPopCurrent_v2", (void **))                                                        \
    X(info, "cuMemGetInfo_v2", (size_t *, size_t *))                                               \
    X(reserve, "cuMemAddressReserve", (uint64_t *, size_t, size_t, uint64_t, unsigned long long))  \
    X(unreserve, "cuMemAddressFree", (uint64_t, size_t))                                           \
    X(create, "cuMemCreate",                                                                       \
      (unsigned long long *, size_t, const struct alloc_prop *, unsigned long long))               \
    X(release, "cuMemRelease", (unsigned long long))                                               \
    X(map, "cuMemMap", (uint64_t, size_t, size_t, unsigned long long, unsigned long long))         \
    X(unmap, "cuMemUnmap", (uint64_t, size_t))                                                     \
    X(access, "cuMemSetAccess", (uint64_t, size_t, const struct access_desc *, size_t))            \
    X(to_host, "cuMemcpyDtoH_v2", (void *, uint64_t, size_t))                                      \
    X(to_device, "cuMemcpyHtoD_v2", (uint64_t, const void *, size_t))                              \
    X(idle, "cuCtxSynchronize", (void))                                                            \
    X(event_new, "cuEventCreate", (void **, unsigned))                                             \
    X(event_gone, "cuEventDestroy_v2", (void *))                                                   \
    X(event_record, "cuEventRecord", (void *, void *))                                             \
    X(event_query, "cuEventQuery", (void *))                                                       \
    X(event_wait, "cuEventSynchronize", (void *))                                                  \
    X(capturing, "cuStreamIsCapturing", (void *, int *))                                           \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *))

struct functions {
#define CUDA_FIELD(field, name, arguments) int(*field) arguments;
    CUDA_FUNCTIONS(CUDA_FIELD)
#undef CUDA_FIELD
};

struct plim_cuda_device {
    struct functions call;
    int device;
    void *context;
    bool rdma;
    bool inside; /* the engine has made a call since plim_cuda_leave(); */
    int mode;    /* capture mode to go back to then */
    size_t n_peers;
    struct access_desc access[PEERS]; /* this device first, then those that can reach it */
    unsigned n_events;
    void *event[EVENTS];
};

static struct plim_cuda_device devices[PLIM_CUDA_DEVICES];

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    return found ? found : library ? dlsym(library, name) : NULL;
}

/* All fields of the table are function pointers: they are found by the list of their names. */
static bool find_functions(struct functions *call, const char **why)
{
#define CUDA_NAME(field, name, arguments) {name, "the driver does not have " name},
    static const char *const names[][2] = {CUDA_FUNCTIONS(CUDA_NAME)};
#undef CUDA_NAME
    void *found[sizeof names / sizeof names[0]] = {NULL};
    _Static_assert(sizeof found == sizeof *call, "one pointer for each name");
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        found[i] = symbol(library, names[i][0]);
        if (!found[i]) {
            *why = names[i][1];
            return false;
        }
    }
    memcpy(call, found, sizeof found);
    return true;
}

/* In: the device's context and a capture mode that forbids nothing. Returns the mode from before. */
static int enter(struct plim_cuda_device *d)
{
    int mode = CAPTURE_RELAXED;
    d->call.push(d->context);
    d->call.capture_mode(&mode);
    return mode;
}

static void leave(struct plim_cuda_device *d, int mode)
{
    void *context;
    d->call.capture_mode(&mode);
    d->call.pop(&context);
}

/* Peers that reach this device's memory by address need access to each mapping: mapped memory is not
 * covered by cuCtxEnablePeerAccess. */
static void find_peers(struct plim_cuda_device *d)
{
    int count = 0;
    d->access[0] = (struct access_desc){{1, d->device}, 3};
    d->n_peers = 1;
    d->call.device_count(&count);
    for (int i = 0; i < count && d->n_peers < PEERS; i++) {
        int can = 0;
        if (i != d->device && d->call.peer(&can, i, d->device) == 0 && can) {
            d->access[d->n_peers++] = (struct access_desc){{1, i}, 3};
        }
    }
}

struct plim_cuda_device *plim_cuda_open(int ordinal, const char **why)
{
    if (ordinal < 0 || ordinal >= PLIM_CUDA_DEVICES) {
        *why = "no such device";
        return NULL;
    }
    struct plim_cuda_device *d = &devices[ordinal];
    int vmm = 0, rdma = 0;
    *d = (struct plim_cuda_device){0};
    if (!find_functions(&d->call, why)) {
        return NULL;
    }
    *why = "the driver gives no context";
    if (d->call.init(0) != 0 || d->call.device_get(&d->device, ordinal) != 0 ||
        d->call.retain(&d->context, d->device) != 0) {
        return NULL;
    }
    d->call.attribute(&vmm, 102, d->device);
    if (!vmm) {
        *why = "the device has no virtual memory management";
        d->call.drop(d->device);
        return NULL;
    }
    d->call.attribute(&rdma, 110, d->device);
    d->rdma = rdma != 0;
    find_peers(d);
    return d;
}

void plim_cuda_close(struct plim_cuda_device *d)
{
    int mode = enter(d);
    while (d->n_events > 0) {
        d->call.event_gone(d->event[--d->n_events]);
    }
    leave(d, mode);
    d->call.drop(d->device);
}

bool plim_cuda_memory(struct plim_cuda_device *d, uint64_t *free_bytes, uint64_t *total)
{
    size_t available = 0, all = 0;
    int mode = enter(d);
    int code = d->call.info(&available, &all);
    leave(d, mode);
    *free_bytes = available;
    *total = all;
    return code == 0;
}

bool plim_cuda_capturing(struct plim_cuda_device *d, uint64_t stream)
{
    int status = 0;
    return d->call.capturing((void *)(uintptr_t)stream, &status) == 0 && status == CAPTURE_ACTIVE;
}

/* ---- the engine's table --------------------------------------------------------------------------- */

static void be_inside(struct plim_cuda_device *d)
{
    if (!d->inside) {
        d->mode = enter(d);
        d->inside = true;
    }
}

void plim_cuda_leave(struct plim_cuda_device *d)
{
    if (d->inside) {
        d->inside = false;
        leave(d, d->mode);
    }
}

static int drv_reserve(void *ctx, uint64_t size, uint64_t align, uint64_t *addr)
{
    struct plim_cuda_device *d = ctx;
    be_inside(d);
    return d->call.reserve(addr, size, align, 0, 0);
}

static void drv_unreserve(void *ctx, uint64_t addr, uint64_t size)
{
    struct plim_cuda_device *d = ctx;
    be_inside(d);
    d->call.unreserve(addr, size);
}

static int drv_create(void *ctx, uint64_t size, uint64_t *handle)
{
    struct plim_cuda_device *d = ctx;
    struct alloc_prop prop = {.type = 1, .location = {1, d->device}, .rdma = d->rdma};
    unsigned long long made = 0;
    be_inside(d);
    int code = d->call.create(&made, size, &prop, 0);
    *handle = made;
    return code;
}

static void drv_release(void *ctx, uint64_t handle, uint64_t size)
{
    struct plim_cuda_device *d = ctx;
    (void)size;
    be_inside(d);
    d->call.release(handle);
}

static int drv_map(void *ctx, uint64_t addr, uint64_t size, uint64_t handle)
{
    struct plim_cuda_device *d = ctx;
    be_inside(d);
    return d->call.map(addr, size, 0, handle, 0);
}

static int drv_access(void *ctx, uint64_t addr, uint64_t size)
{
    struct plim_cuda_device *d = ctx;
    be_inside(d);
    return d->call.access(addr, size, d->access, d->n_peers);
}

static void drv_unmap(void *ctx, uint64_t addr, uint64_t size)
{
    struct plim_cuda_device *d = ctx;
    be_inside(d);
    d->call.unmap(addr, size);
}

static uint64_t drv_record(void *ctx, uint64_t stream)
{
    struct plim_cuda_device *d = ctx;
    void *event = NULL;
    be_inside(d);
    int code = 0;
    if (d->n_events > 0) {
        event = d->event[--d->n_events];
    } else {
        code = d->call.event_new(&event, EVENT_NO_TIMING);
    }
    if (code == 0 && d->call.event_record(event, (void *)(uintptr_t)stream) != 0) {
        d->call.event_gone(event);
        event = NULL;
    }
    return code == 0 ? (uint64_t)(uintptr_t)event : 0;
}

static bool drv_done(void *ctx, uint64_t event)
{
    struct plim_cuda_device *d = ctx;
    be_inside(d);
    return d->call.event_query((void *)(uintptr_t)event) == 0;
}

static void drv_wait(void *ctx, uint64_t event)
{
    struct plim_cuda_device *d = ctx;
    be_inside(d);
    d->call.event_wait((void *)(uintptr_t)event);
}

static void drv_forget(void *ctx, uint64_t event)
{
    struct plim_cuda_device *d = ctx;
    if (d->n_events < EVENTS) {
        d->event[d->n_events++] = (void *)(uintptr_t)event;
        return;
    }
    be_inside(d);
    d->call.event_gone((void *)(uintptr_t)event);
}

bool plim_cuda_idle(struct plim_cuda_device *d)
{
    be_inside(d);
    return d->call.idle() == 0;
}

bool plim_cuda_to_host(struct plim_cuda_device *d, void *host, uint64_t addr, uint64_t size)
{
    be_inside(d);
    return d->call.to_host(host, addr, size) == 0;
}

bool plim_cuda_to_device(struct plim_cuda_device *d, uint64_t addr, const void *host, uint64_t size)
{
    be_inside(d);
    return d->call.to_device(addr, host, size) == 0;
}

const struct plim_engine_driver *plim_cuda_driver(void)
{
    static const struct plim_engine_driver driver = {
        drv_reserve, drv_unreserve, drv_create, drv_release, drv_map,    drv_access,
        drv_unmap,   drv_record,    drv_done,   drv_wait,    drv_forget,
    };
    return &driver;
}
