/* SPDX-License-Identifier: Apache-2.0 */

/*
 * NVML as a vendor: what nvidia-smi reads, without linking to it. Each function is looked up by
 * name, newest form first; one that is missing leaves its figures invalid.
 *
 * Layouts and numbers: nvidia-ml-py 13 (pynvml.py). Traps that this file knows:
 *   memory v2 `used` is printed with or without `reserved`, so free decides (sample.c);
 *   a process list is in/out: count too small gives 7 and the needed one;
 *   the unsuffixed process lists have entries of 16 bytes, all others of 24;
 *   bytes of all ones mean "not available" (MIG without permission, some containers);
 *   a GPU that shares the host's memory says 3 (not supported) to the question for its memory.
 */

#include "base/num.h"
#include "device/sampler.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *nvml_device;

enum nvml_code {
    NVML_OK = 0,
    NVML_UNINITIALIZED = 1,
    NVML_UNSUPPORTED = 3,
    NVML_DENIED = 4,
    NVML_SMALL = 7,
    NVML_NOT_LOADED = 9,
    NVML_MISSING = 13, /* FUNCTION_NOT_FOUND; also ours for a symbol that is not there */
    NVML_LOST = 15,
    NVML_UNKNOWN = 999
};

struct memory_v1 {
    uint64_t total, free, used;
};
struct memory_v2 {
    uint32_t version; /* size | 2 << 24 */
    uint64_t total, reserved, free, used;
};
struct process_v1 {
    uint32_t pid;
    uint64_t used;
};
struct process_v2 { /* _v2 and _v3 */
    uint32_t pid;
    uint64_t used;
    uint32_t gpu_instance, compute_instance;
};
struct pci {
    char legacy[16];
    uint32_t domain, bus, device, id, subsystem;
    char text[32];
};
struct event {
    nvml_device device;
    uint64_t type, data; /* data: number of the Xid */
    uint32_t gpu_instance, compute_instance;
};
_Static_assert(sizeof(struct memory_v2) == 40 && sizeof(struct process_v2) == 24 &&
                   sizeof(struct process_v1) == 16 && sizeof(struct event) == 32,
               "layouts of NVML");

/* X(field, parameters, name, older name): every call, all of them returning int. */
#define NVML_CALLS(X)                                                                              \
    X(init, (void), "nvmlInit_v2", "nvmlInit")                                                     \
    X(shutdown, (void), "nvmlShutdown", NULL)                                                      \
    X(count, (unsigned *), "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")                          \
    X(handle, (unsigned, nvml_device *), "nvmlDeviceGetHandleByIndex_v2",                          \
      "nvmlDeviceGetHandleByIndex")                                                                \
    X(name, (nvml_device, char *, unsigned), "nvmlDeviceGetName", NULL)                            \
    X(uuid, (nvml_device, char *, unsigned), "nvmlDeviceGetUUID", NULL)                            \
    X(pci, (nvml_device, struct pci *), "nvmlDeviceGetPciInfo_v3", NULL)                           \
    X(memory, (nvml_device, struct memory_v1 *), "nvmlDeviceGetMemoryInfo", NULL)                  \
    X(memory2, (nvml_device, struct memory_v2 *), "nvmlDeviceGetMemoryInfo_v2", NULL)              \
    X(bar1, (nvml_device, struct memory_v1 *), "nvmlDeviceGetBAR1MemoryInfo", NULL)                \
    X(rates, (nvml_device, unsigned *), "nvmlDeviceGetUtilizationRates", NULL)                     \
    X(temperature, (nvml_device, int, unsigned *), "nvmlDeviceGetTemperature", NULL)               \
    X(power, (nvml_device, unsigned *), "nvmlDeviceGetPowerUsage", NULL)                           \
    X(clock, (nvml_device, int, unsigned *), "nvmlDeviceGetClockInfo", NULL)                       \
    X(ecc, (nvml_device, int, int, uint64_t *), "nvmlDeviceGetTotalEccErrors", NULL)               \
    X(retired, (nvml_device, int, unsigned *, uint64_t *), "nvmlDeviceGetRetiredPages", NULL)      \
    X(remapped, (nvml_device, unsigned *, unsigned *, unsigned *, unsigned *),                     \
      "nvmlDeviceGetRemappedRows", NULL)                                                           \
    X(mig_mode, (nvml_device, unsigned *, unsigned *), "nvmlDeviceGetMigMode", NULL)               \
    X(mig_count, (nvml_device, unsigned *), "nvmlDeviceGetMaxMigDeviceCount", NULL)                \
    X(mig_handle, (nvml_device, unsigned, nvml_device *), "nvmlDeviceGetMigDeviceHandleByIndex",   \
      NULL)                                                                                        \
    X(set_create, (void **), "nvmlEventSetCreate", NULL)                                           \
    X(set_register, (nvml_device, uint64_t, void *), "nvmlDeviceRegisterEvents", NULL)             \
    X(set_wait, (void *, struct event *, unsigned), "nvmlEventSetWait_v2", "nvmlEventSetWait")     \
    X(set_free, (void *), "nvmlEventSetFree", NULL)

#define DEVICES_MAX  256u
#define XIDS_PER_ASK 64u
#define XID_CRITICAL UINT64_C(8)
#define LIST_TRIES   4

struct xid_count {
    nvml_device device;
    uint64_t count, last;
};

/* What a device is called: one that is lost does not say it any more. */
struct known {
    nvml_device device;
    char name[96], uuid[96], pci[20];
};

struct nvml {
    void *library;
#define PLIM__X(field, parameters, name, older) int(*field) parameters;
    NVML_CALLS(PLIM__X)
#undef PLIM__X
    const struct plim_world *world;
    void *events; /* a set, or NULL */
    struct xid_count xids[DEVICES_MAX];
    size_t n_xids;
    bool stale; /* the driver went away: start it anew before the next question */
    PLIM_VEC(struct process_v2) list;
    PLIM_VEC(struct known) known;     /* by the driver's handles, which stay the same */
    nvml_device handles[DEVICES_MAX]; /* by the driver's numbers, as last known, or NULL */
};

/* The call, or NVML_MISSING. */
#define CALL(n, field, ...) ((n)->field != NULL ? (n)->field(__VA_ARGS__) : NVML_MISSING)

static bool find(void *library, const char *name, void *function)
{
    void *symbol = name != NULL ? dlsym(library, name) : NULL;
    memcpy(function, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static void listen_for_xids(struct nvml *n)
{
    unsigned count = 0;
    if (n->events != NULL || n->set_wait == NULL || CALL(n, set_create, &n->events) != NVML_OK) {
        return;
    }
    (void)CALL(n, count, &count);
    for (unsigned i = 0; i < count; i++) {
        nvml_device device;
        if (CALL(n, handle, i, &device) == NVML_OK) {
            (void)CALL(n, set_register, device, XID_CRITICAL, n->events);
        }
    }
}

static enum plim_status nvml_open(const struct plim_world *world, const char *script, void **self,
                                  struct plim_err *err)
{
    (void)script;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    struct nvml *n = library != NULL ? calloc(1, sizeof(*n)) : NULL;
    if (n == NULL) {
        (void)(library != NULL ? dlclose(library) : 0);
        return plim__fail(err, PLIM_E_NOTFOUND, "libnvidia-ml.so.1 cannot be loaded");
    }
    n->library = library;
    n->world = world;
#define PLIM__X(field, parameters, name, older)                                                    \
    (void)(find(library, name, &n->field) || find(library, older, &n->field));
    NVML_CALLS(PLIM__X)
#undef PLIM__X
    int code = CALL(n, init);
    if (code != NVML_OK) {
        (void)dlclose(library);
        free(n);
        return plim__fail(err, PLIM_E_UNSUPPORTED, "NVML does not start: error %d", code);
    }
    listen_for_xids(n);
    *self = n;
    return PLIM_OK;
}

static void nvml_close(void *self)
{
    struct nvml *n = self;
    if (n->events != NULL) {
        (void)CALL(n, set_free, n->events);
    }
    (void)CALL(n, shutdown);
    (void)dlclose(n->library);
    plim_vec_fini(&n->list);
    plim_vec_fini(&n->known);
    free(n);
}

/* After a reload of the driver every call fails until it is started again. */
static void restart(struct nvml *n)
{
    n->events = NULL;
    (void)CALL(n, shutdown);
    n->stale = CALL(n, init) != NVML_OK;
    if (!n->stale) {
        listen_for_xids(n);
    }
}

static enum plim_device_state state_of(int code)
{
    switch (code) {
    case NVML_OK:
        return PLIM_DEVICE_OK;
    case NVML_UNSUPPORTED:
    case NVML_MISSING:
        return PLIM_DEVICE_UNSUPPORTED;
    case NVML_DENIED:
        return PLIM_DEVICE_DENIED;
    case NVML_LOST:
    case NVML_UNINITIALIZED:
    case NVML_NOT_LOADED:
        return PLIM_DEVICE_LOST;
    default:
        return PLIM_DEVICE_ERROR;
    }
}

/* ---- one device ---- */

/* What was known of a device before. */
static void remember_names(const struct nvml *n, nvml_device device, struct plim_device_sample *d)
{
    plim_vec_foreach (k, &n->known) {
        if (k->device == device) {
            memcpy(d->name, k->name, sizeof(d->name));
            memcpy(d->uuid, k->uuid, sizeof(d->uuid));
            memcpy(d->pci, k->pci, sizeof(d->pci));
        }
    }
}

static void keep_names(struct nvml *n, nvml_device device, const struct plim_device_sample *d)
{
    struct known fresh = {.device = device};
    memcpy(fresh.name, d->name, sizeof(fresh.name));
    memcpy(fresh.uuid, d->uuid, sizeof(fresh.uuid));
    memcpy(fresh.pci, d->pci, sizeof(fresh.pci));
    plim_vec_foreach (k, &n->known) {
        if (k->device == device) {
            *k = fresh;
            return;
        }
    }
    (void)!plim_vec_push(&n->known, NULL, fresh);
}

static void ask_names(struct nvml *n, nvml_device device, struct plim_device_sample *d)
{
    struct pci pci = {0};
    remember_names(n, device, d);
    (void)CALL(n, name, device, d->name, (unsigned)sizeof(d->name));
    (void)CALL(n, uuid, device, d->uuid, (unsigned)sizeof(d->uuid));
    d->name[sizeof(d->name) - 1] = d->uuid[sizeof(d->uuid) - 1] = '\0';
    if (CALL(n, pci, device, &pci) == NVML_OK) {
        (void)snprintf(d->pci, sizeof(d->pci), "%04x:%02x:%02x.0", pci.domain & 0xffff,
                       pci.bus & 0xff, pci.device & 0xff);
    }
    keep_names(n, device, d);
}

/* NVML says that it has no memory of its own to tell of: the host's is the device's. */
static void share_host_memory(struct nvml *n, struct plim_device_sample *d)
{
    uint64_t total, available;
    if (plim_host_memory(n->world, &total, &available)) {
        d->unified = true;
        plim_set_figure(d, PLIM_FIGURE_TOTAL, total);
        plim_set_figure(d, PLIM_FIGURE_FREE, available);
    }
}

static void ask_memory(struct nvml *n, nvml_device device, struct plim_device_sample *d)
{
    struct memory_v2 v2 = {.version = (uint32_t)sizeof(v2) | 2U << 24};
    struct memory_v1 v1 = {0};
    int code = CALL(n, memory2, device, &v2);
    if (code == NVML_OK) {
        plim_set_figure(d, PLIM_FIGURE_TOTAL, v2.total);
        plim_set_figure(d, PLIM_FIGURE_FREE, v2.free);
        plim_set_figure(d, PLIM_FIGURE_USED, v2.used);
        plim_set_figure(d, PLIM_FIGURE_RESERVED, v2.reserved);
    } else {
        code = CALL(n, memory, device, &v1);
        if (code == NVML_OK) {
            plim_set_figure(d, PLIM_FIGURE_TOTAL, v1.total);
            plim_set_figure(d, PLIM_FIGURE_FREE, v1.free);
            plim_set_figure(d, PLIM_FIGURE_USED, v1.used);
        }
    }
    d->state = state_of(code);
    d->code = code;
    n->stale = n->stale || d->state == PLIM_DEVICE_LOST;
    if (code == NVML_UNSUPPORTED) {
        share_host_memory(n, d);
        d->state = d->unified ? PLIM_DEVICE_OK : d->state;
    }
    if (CALL(n, bar1, device, &v1) == NVML_OK) {
        plim_set_figure(d, PLIM_FIGURE_BAR1_TOTAL, v1.total);
        plim_set_figure(d, PLIM_FIGURE_BAR1_USED, v1.used);
    }
}

static void ask_health(struct nvml *n, nvml_device device, struct plim_device_sample *d)
{
    unsigned rates[2] = {0}, value = 0, rows[4] = {0}, sum = 0;
    uint64_t errors = 0;
    bool retired = false;
    if (CALL(n, rates, device, rates) == NVML_OK) {
        plim_set_figure(d, PLIM_FIGURE_BUSY, rates[0]);
        plim_set_figure(d, PLIM_FIGURE_MEMORY_BUSY, rates[1]);
    }
    if (CALL(n, temperature, device, 0, &value) == NVML_OK) {
        plim_set_figure(d, PLIM_FIGURE_TEMPERATURE, value);
    }
    if (CALL(n, power, device, &value) == NVML_OK) {
        plim_set_figure(d, PLIM_FIGURE_POWER, value);
    }
    for (int type = 1; type <= 2; type++) { /* 1: multiprocessors, 2: memory */
        if (CALL(n, clock, device, type, &value) == NVML_OK) {
            plim_set_figure(d, type == 1 ? PLIM_FIGURE_SM_CLOCK : PLIM_FIGURE_MEMORY_CLOCK, value);
        }
    }
    for (int type = 0; type < 2;
         type++) { /* 0: corrected; counted since the driver was loaded: 0 */
        if (CALL(n, ecc, device, type, 0, &errors) == NVML_OK) {
            plim_set_figure(d, type == 0 ? PLIM_FIGURE_ECC_CORRECTED : PLIM_FIGURE_ECC_UNCORRECTED,
                            errors);
        }
    }
    for (int cause = 0; cause < 2; cause++) { /* many single-bit errors, one double-bit error */
        unsigned pages = 0;
        int code = CALL(n, retired, device, cause, &pages, NULL);
        if (code == NVML_OK || code == NVML_SMALL) {
            sum += pages;
            retired = true;
        }
    }
    if (retired) {
        plim_set_figure(d, PLIM_FIGURE_RETIRED_PAGES, sum);
    }
    if (CALL(n, remapped, device, &rows[0], &rows[1], &rows[2], &rows[3]) == NVML_OK) {
        plim_set_figure(d, PLIM_FIGURE_REMAPPED_ROWS, (uint64_t)rows[0] + rows[1]);
        plim_set_figure(d, PLIM_FIGURE_REMAP_PENDING, rows[2] != 0);
    }
}

/* ---- processes ---- */

typedef int (*list_call)(nvml_device, unsigned *, void *);

/* Fill n->list with one kind of processes. @wide: entries of 24 bytes. */
static int ask_list(struct nvml *n, nvml_device device, list_call call, bool wide)
{
    unsigned room = 64;
    for (int i = 0; i < LIST_TRIES; i++) {
        unsigned count = room;
        n->list.n = 0;
        if (plim_vec_reserve(&n->list, room, NULL) != PLIM_OK) {
            return NVML_UNKNOWN;
        }
        int code = call(device, &count, n->list.items);
        if (code == NVML_SMALL && count < 1U << 20) {
            room = 2 * count + 5;
            continue;
        }
        if (code != NVML_OK || count > room) {
            return code != NVML_OK ? code : NVML_UNKNOWN;
        }
        n->list.n = count;
        for (size_t k = count; !wide && k-- > 0;) { /* widen in place, from the end */
            struct process_v1 narrow;
            memcpy(&narrow, (const char *)n->list.items + k * sizeof(narrow), sizeof(narrow));
            n->list.items[k] = (struct process_v2){narrow.pid, narrow.used, UINT32_MAX, UINT32_MAX};
        }
        return NVML_OK;
    }
    return NVML_SMALL;
}

static int ask_kind(struct nvml *n, nvml_device device, const char *kind)
{
    static const char *const suffixes[] = {"_v3", "_v2", ""};
    int code = NVML_MISSING;
    for (size_t i = 0; i < PLIM_COUNT_OF(suffixes); i++) {
        char name[64];
        list_call call = NULL;
        (void)snprintf(name, sizeof(name), "nvmlDeviceGet%sRunningProcesses%s", kind, suffixes[i]);
        if (find(n->library, name, &call)) {
            code = ask_list(n, device, call, suffixes[i][0] != '\0');
            if (code == NVML_OK || code != NVML_MISSING) {
                return code;
            }
        }
    }
    return code;
}

static enum plim_status ask_processes(struct nvml *n, nvml_device device, uint32_t index,
                                      struct plim_sample *out, struct plim_err *err)
{
    static const struct {
        const char *name;
        uint32_t kind;
    } kinds[] = {{"Compute", PLIM_USE_COMPUTE},
                 {"Graphics", PLIM_USE_GRAPHICS},
                 {"MPSCompute", PLIM_USE_MPS}};
    for (size_t k = 0; k < PLIM_COUNT_OF(kinds); k++) {
        if (ask_kind(n, device, kinds[k].name) != NVML_OK) {
            continue;
        }
        plim_vec_foreach (p, &n->list) {
            struct plim_process_use use = {.device = index,
                                           .pid = p->pid,
                                           .gpu_instance = p->gpu_instance,
                                           .compute_instance = p->compute_instance,
                                           .kinds = kinds[k].kind,
                                           .bytes = p->used,
                                           .bytes_valid = p->used != UINT64_MAX};
            use.bytes = use.bytes_valid ? use.bytes : 0;
            PLIM_TRY(plim_sample_add_use(out, &use, err));
        }
    }
    return PLIM_OK;
}

/* ---- all devices ---- */

static enum plim_status add_device(struct nvml *n, nvml_device device, uint32_t parent,
                                   struct plim_sample *out, struct plim_err *err)
{
    struct plim_device_sample d = {.vendor = PLIM_VENDOR_NVIDIA, .parent = parent};
    uint32_t index = (uint32_t)out->devices.n;
    unsigned mode = 0, pending = 0, most = 0;
    ask_names(n, device, &d);
    ask_memory(n, device, &d);
    if (parent == PLIM_NO_PARENT) {
        ask_health(n, device, &d);
        d.divided = CALL(n, mig_mode, device, &mode, &pending) == NVML_OK && mode == 1;
    }
    for (size_t i = 0; i < n->n_xids; i++) {
        if (n->xids[i].device == device) {
            plim_set_figure(&d, PLIM_FIGURE_XIDS, n->xids[i].count);
            plim_set_figure(&d, PLIM_FIGURE_LAST_XID, n->xids[i].last);
        }
    }
    if (n->events != NULL && !plim_has_figure(&d, PLIM_FIGURE_XIDS) && parent == PLIM_NO_PARENT) {
        plim_set_figure(&d, PLIM_FIGURE_XIDS, 0);
    }
    PLIM_TRY(plim_vec_push(&out->devices, err, d));
    if (!d.divided) {
        return ask_processes(n, device, index, out, err);
    }
    (void)CALL(n, mig_count, device, &most);
    for (unsigned i = 0; i < most && i < DEVICES_MAX; i++) {
        nvml_device instance;
        if (CALL(n, mig_handle, device, i, &instance) == NVML_OK) {
            PLIM_TRY(add_device(n, instance, index, out, err));
        }
    }
    return PLIM_OK;
}

static void take_xids(struct nvml *n)
{
    struct event event;
    for (unsigned i = 0; n->events != NULL && i < XIDS_PER_ASK; i++) {
        if (CALL(n, set_wait, n->events, &event, 0) != NVML_OK) {
            return; /* TIMEOUT: no more */
        }
        size_t k = 0;
        while (k < n->n_xids && n->xids[k].device != event.device) {
            k++;
        }
        if (k == DEVICES_MAX || (event.type & XID_CRITICAL) == 0) {
            continue;
        }
        n->n_xids = k == n->n_xids ? k + 1 : n->n_xids;
        n->xids[k].device = event.device;
        n->xids[k].count++;
        n->xids[k].last = event.data;
    }
}

static enum plim_status nvml_sample(void *self, struct plim_sample *out, struct plim_err *err)
{
    struct nvml *n = self;
    unsigned count = 0;
    if (n->stale) {
        restart(n);
    }
    take_xids(n);
    if (CALL(n, count, &count) != NVML_OK) {
        n->stale = true;
        return PLIM_OK;
    }
    for (unsigned i = 0; i < count && i < DEVICES_MAX; i++) {
        nvml_device device = NULL;
        int code = CALL(n, handle, i, &device);
        if (code == NVML_OK) {
            n->handles[i] = device;
            PLIM_TRY(add_device(n, device, PLIM_NO_PARENT, out, err));
            continue;
        }
        struct plim_device_sample d = {.vendor = PLIM_VENDOR_NVIDIA,
                                       .state = state_of(code),
                                       .code = code,
                                       .parent = PLIM_NO_PARENT};
        remember_names(n, n->handles[i], &d);
        PLIM_TRY(plim_vec_push(&out->devices, err, d));
    }
    return PLIM_OK;
}

const struct plim_vendor plim__vendor_nvml = {"nvml", nvml_open, nvml_sample, nvml_close};
