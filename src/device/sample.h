/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DEVICE_SAMPLE_H
#define PLIM_DEVICE_SAMPLE_H

/*
 * One look at all devices of this machine: what each holds, and which process holds it.
 *
 *   figure   one number of a device; it counts only when its bit in `valid` is set. Unknown is not 0
 *   use      one process on one device
 *   facts    what /proc says of a process that uses a device
 *   sample   all of these at one time
 *
 * Books of a device, after plim_sample_balance(); plim_sample_check() verifies them:
 *   used + free + reserved = total           (an unknown reserve is 0)
 *   counted bytes of all uses + unknown = used
 * A driver's figures that contradict each other set `odd`: they are then what can be saved of them.
 * Order of devices: by vendor, then the vendor's own (NVML: PCI bus, which is not CUDA's order).
 * Sizes in bytes. Threads: plain data.
 */

#include "base/vec.h"

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, JSON key): figures of a device. */
#define PLIM_FIGURE_MAP(X)                                                                         \
    X(TOTAL, "total_bytes")                                                                        \
    X(USED, "used_bytes") /* held by somebody: without `reserved` */                               \
    X(FREE, "free_bytes")                                                                          \
    X(RESERVED, "reserved_bytes") /* by driver and firmware */                                     \
    X(BAR1_TOTAL, "bar1_total_bytes")                                                              \
    X(BAR1_USED, "bar1_used_bytes")                                                                \
    X(HOST_TOTAL, "host_total_bytes") /* of host memory that the device may use (GTT) */           \
    X(HOST_USED, "host_used_bytes")                                                                \
    X(BUSY, "busy_percent")                                                                        \
    X(MEMORY_BUSY, "memory_busy_percent") /* of the bandwidth, not of the bytes */                 \
    X(TEMPERATURE, "temperature_celsius")                                                          \
    X(POWER, "power_milliwatts")                                                                   \
    X(SM_CLOCK, "sm_clock_mhz")                                                                    \
    X(MEMORY_CLOCK, "memory_clock_mhz")                                                            \
    X(ECC_CORRECTED, "ecc_corrected_errors")     /* since the driver was loaded */                 \
    X(ECC_UNCORRECTED, "ecc_uncorrected_errors") /* likewise */                                    \
    X(RETIRED_PAGES, "retired_pages")                                                              \
    X(REMAPPED_ROWS, "remapped_rows")                                                              \
    X(REMAP_PENDING, "remap_pending") /* 1: a reset is needed to activate it */                    \
    X(XIDS, "xids")                   /* critical errors seen since the sampler was opened */      \
    X(LAST_XID, "last_xid")           /* number of the last one */

enum plim_figure {
#define PLIM__X(name, key) PLIM_FIGURE_##name,
    PLIM_FIGURE_MAP(PLIM__X)
#undef PLIM__X
    PLIM_FIGURE_COUNT
};

/* X(NAME, JSON text) */
#define PLIM_DEVICE_STATE_MAP(X)                                                                   \
    X(OK, "ok")                                                                                    \
    X(UNSUPPORTED, "unsupported") /* it is there, and does not tell its memory */                  \
    X(DENIED, "denied")           /* only for privileged users */                                  \
    X(LOST, "lost")               /* fallen off the bus, or the driver is gone */                  \
    X(HUNG, "hung")               /* the driver did not answer in time */                          \
    X(ERROR, "error")

enum plim_device_state {
#define PLIM__X(name, text) PLIM_DEVICE_##name,
    PLIM_DEVICE_STATE_MAP(PLIM__X)
#undef PLIM__X
    PLIM_DEVICE_STATES
};

/* X(NAME, JSON text) */
#define PLIM_VENDOR_MAP(X)                                                                         \
    X(NVIDIA, "nvidia")                                                                            \
    X(AMD, "amd")                                                                                  \
    X(INTEL, "intel")                                                                              \
    X(OTHER, "other")

enum plim_vendor_kind {
#define PLIM__X(name, text) PLIM_VENDOR_##name,
    PLIM_VENDOR_MAP(PLIM__X)
#undef PLIM__X
    PLIM_VENDORS
};

#define PLIM_NO_PARENT   UINT32_MAX
#define PLIM_NO_INSTANCE UINT32_MAX

struct plim_device_sample {
    char name[96]; /* "NVIDIA H100 80GB HBM3", "" unknown */
    char uuid[96]; /* "GPU-...", "MIG-...", "" unknown */
    char pci[20];  /* "0000:41:00.0", lower case, "" unknown */
    enum plim_vendor_kind vendor;
    enum plim_device_state state;
    int code;        /* the vendor's error number, 0 none */
    uint32_t parent; /* index of the device that this is an instance (MIG) of, or NO_PARENT */
    bool divided;    /* it has such instances: its own figures are the sum */
    bool unified;    /* it shares the host's memory; figures are the host's */
    bool odd;        /* its figures contradicted each other */
    uint64_t valid;  /* bit for each figure */
    uint64_t figure[PLIM_FIGURE_COUNT];
};

/* What a process does on a device. */
#define PLIM_USE_COMPUTE  1u
#define PLIM_USE_GRAPHICS 2u
#define PLIM_USE_MPS      4u

struct plim_process_use {
    uint32_t device;                         /* index into plim_sample.devices */
    uint32_t pid;                            /* as this process sees it, if the driver translates */
    uint32_t gpu_instance, compute_instance; /* MIG, or NO_INSTANCE */
    uint32_t kinds;                          /* PLIM_USE_* */
    bool bytes_valid;                        /* the driver tells the bytes */
    uint64_t bytes;
    uint64_t counted; /* of these, what counts in the device's books; 0 when not valid */
};

/* X(field, size, JSON key): texts, "" when unknown */
#define PLIM_PROCESS_TEXT_MAP(X)                                                                   \
    X(name, 16, "name")           /* /proc/PID/comm */                                             \
    X(container, 72, "container") /* id */                                                         \
    X(pod, 40, "pod")             /* Kubernetes' uid */                                            \
    X(unit, 128, "unit")          /* of systemd: "vllm.service" */

struct plim_process_facts {
    uint32_t pid, ppid;
    uint64_t start_ticks; /* since boot: with the pid it names a process for ever; 0: it is gone */
    uint64_t rss;         /* bytes of host memory; 0 when it is gone */
#define PLIM__X(field, size, key) char field[size];
    PLIM_PROCESS_TEXT_MAP(PLIM__X)
#undef PLIM__X
};

struct plim_sample {
    uint64_t time_ns;                    /* since 1970 */
    uint64_t host_total, host_available; /* bytes; 0 unknown */
    PLIM_VEC(struct plim_device_sample) devices;
    PLIM_VEC(struct plim_process_use) uses;
    PLIM_VEC(struct plim_process_facts) processes; /* one for each pid in uses */
};

void plim_sample_fini(struct plim_sample *sample);

/** plim_sample_reset() - empty, keeping its storage. */
void plim_sample_reset(struct plim_sample *sample);

static inline bool plim_has_figure(const struct plim_device_sample *d, enum plim_figure figure)
{
    return (d->valid >> figure & 1) != 0;
}

static inline void plim_set_figure(struct plim_device_sample *d, enum plim_figure figure,
                                   uint64_t value)
{
    d->figure[figure] = value;
    d->valid |= UINT64_C(1) << figure;
}

/** plim_sample_add_use() - a use as the driver lists it; the same process and instance twice is one
 * use, with the greater bytes (a process that computes and draws is in two lists). Errors:
 * PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_sample_add_use(struct plim_sample *sample,
                                                   const struct plim_process_use *use,
                                                   struct plim_err *err);

/** plim_sample_balance() - make the books of every device come out; see above. */
void plim_sample_balance(struct plim_sample *sample);

/** plim_sample_check() - whether the books come out and nothing is impossible. */
bool plim_sample_check(const struct plim_sample *sample);

/** plim_sample_unknown() - used bytes of a device that belong to no listed process; false: not
 * known. */
bool plim_sample_unknown(const struct plim_sample *sample, uint32_t device, uint64_t *bytes);

/** plim_sample_process() - the facts of a pid, or NULL. */
const struct plim_process_facts *plim_sample_process(const struct plim_sample *sample,
                                                     uint32_t pid);

const char *plim_figure_key(enum plim_figure figure);
const char *plim_device_state_text(enum plim_device_state state);
const char *plim_vendor_text(enum plim_vendor_kind vendor);

_Static_assert(PLIM_FIGURE_COUNT <= 64, "validity is one word");

#endif
