/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices and kernels: the thread's current device, attributes, registered functions.
 *
 * Registration happens thousands of times while libraries load, before any device is wanted, so it
 * only appends to a table. What a kernel was compiled for is read from its fat binary when somebody
 * asks: CUB and others choose launch parameters by the compiled architecture and fail when told one
 * that their library does not contain, so the answer must be one of those.
 */

#include "sim.h"
#include <string.h>
#include <sys/mman.h>

#define FUNCTION_SLOTS ((uint64_t)1 << 21) /* open addressing; a program registers about 100,000 */
#define MODULES_MAX    65536
#define FATBIN_WRAPPER 0x466243b1u
#define FATBIN_MAGIC   0xba55ed50u

struct function {
    const void *host;
    const char *name;
    void **module;
};

_Atomic uint64_t sim_launches;

static _Thread_local int current_device;

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct function *functions;
static void *modules[MODULES_MAX]; /* a module's handle is the address of its entry */
static uint32_t n_modules;

int sim_current(void)
{
    return current_device;
}

int sim_set_current(int device)
{
    if (device < 0 || device >= sim_device_count()) {
        return SIM_E_DEVICE;
    }
    current_device = device;
    return SIM_OK;
}

int sim_attribute(int device, int attribute)
{
    const struct sim_card *c = sim_card(device);
    static const struct {
        uint8_t attribute;
        int value;
    } fixed[] = {
#define SIM_ATTRIBUTE(number, value, name) {number, value},
#include "attributes.def"
#undef SIM_ATTRIBUTE
    };
    switch (attribute) {
    case 16:
        return c->sms;
    case 33:
        return device + 1; /* PCI bus */
    case 37:
        return c->bus_bits;
    case 38:
        return c->l2_bytes;
    case 39:
        return c->sm_threads;
    case 75:
        return c->cc_major;
    case 76:
        return c->cc_minor;
    case 81:
        return c->smem_sm;
    case 97:
        return c->smem_optin;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (fixed[i].attribute == attribute) {
            return fixed[i].value;
        }
    }
    return 0;
}

/* ---- registered functions */

static uint64_t slot_of(const void *host)
{
    return ((uint64_t)(uintptr_t)host * 0x9e3779b97f4a7c15u) >> 43;
}

static const struct function *function_of(const void *host)
{
    if (functions == NULL) {
        return NULL;
    }
    uint64_t i = slot_of(host);
    while (functions[i].host != NULL && functions[i].host != host) {
        i = (i + 1) % FUNCTION_SLOTS;
    }
    return functions[i].host == NULL ? NULL : &functions[i];
}

void **sim_module_new(const void *wrapper)
{
    (void)pthread_mutex_lock(&registry_lock);
    uint32_t i = n_modules < MODULES_MAX - 1 ? n_modules++ : MODULES_MAX - 1;
    modules[i] = (void *)(uintptr_t)wrapper;
    (void)pthread_mutex_unlock(&registry_lock);
    return &modules[i];
}

void sim_function_new(void **module, const void *host, const char *name)
{
    (void)pthread_mutex_lock(&registry_lock);
    static uint64_t n;
    if (functions == NULL) {
        void *p = mmap(NULL, FUNCTION_SLOTS * sizeof *functions, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        functions = p == MAP_FAILED ? NULL : p;
    }
    if (functions != NULL && n < FUNCTION_SLOTS / 2) {
        uint64_t i = slot_of(host);
        while (functions[i].host != NULL && functions[i].host != host) {
            i = (i + 1) % FUNCTION_SLOTS;
        }
        n += functions[i].host == NULL;
        functions[i] = (struct function){host, name, module};
    }
    (void)pthread_mutex_unlock(&registry_lock);
}

const char *sim_kernel_name(const void *host)
{
    const struct function *f = function_of(host);
    return f == NULL ? "kernel" : f->name;
}

/*
 * Best architecture of a fat binary for a capability: the highest that is not above it. Code in SASS
 * runs within its major version, PTX on anything newer. Layout of the container (public, as read by
 * many tools): header {magic u32, version u16, header bytes u16, body bytes u64}, then entries
 * {kind u16 (1 PTX, 2 ELF), u16, header bytes u32, body bytes u64, ..., architecture u32 at 28}.
 */
static int best_arch(const void *wrapper, int cc)
{
    const struct {
        uint32_t magic, version;
        const char *data;
    } *w = wrapper;
    int best = 0;
    uint32_t magic;
    uint16_t header;
    uint64_t body;
    if (w == NULL || w->magic != FATBIN_WRAPPER || w->data == NULL) {
        return 0;
    }
    memcpy(&magic, w->data, sizeof magic);
    memcpy(&header, w->data + 6, sizeof header);
    memcpy(&body, w->data + 8, sizeof body);
    const char *p = w->data + header, *end = p + body;
    while (magic == FATBIN_MAGIC && end - p >= 32) {
        uint16_t kind;
        uint32_t entry_header, arch;
        uint64_t entry_body;
        memcpy(&kind, p, sizeof kind);
        memcpy(&entry_header, p + 4, sizeof entry_header);
        memcpy(&entry_body, p + 8, sizeof entry_body);
        memcpy(&arch, p + 28, sizeof arch);
        bool runs = (int)arch <= cc && (kind == 1 || (int)arch / 10 == cc / 10);
        if (runs && (int)arch > best) {
            best = (int)arch;
        }
        if (entry_header < 32 || entry_header + entry_body > (uint64_t)(end - p)) {
            break;
        }
        p += entry_header + entry_body;
    }
    return best;
}

int sim_kernel_arch(const void *host, int device)
{
    const struct sim_card *c = sim_card(device);
    int cc = c->cc_major * 10 + c->cc_minor;
    const struct function *f = function_of(host);
    int best = f == NULL || f->module == NULL ? 0 : best_arch(*f->module, cc);
    return best == 0 ? cc : best;
}
