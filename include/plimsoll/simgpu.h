/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIMSOLL_SIMGPU_H
#define PLIMSOLL_SIMGPU_H

/*
 * Control of the simulated GPU from inside a program that runs on it.
 *
 * Find these with dlsym(RTLD_DEFAULT, ...) or ctypes.CDLL(None): they exist only when the simulated
 * device is preloaded. Settings are those of the environment (docs/design/simgpu.md), lower case and
 * without the prefix. Threads: all calls are safe from any thread; log_clear is not, while others
 * make calls. Sizes are bytes.
 */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#    define PLIMSOLL_SIM_COUNTER uint64_t
#else
#    include <stdatomic.h>
#    define PLIMSOLL_SIM_COUNTER _Atomic uint64_t
#endif

/* One logged call, 40 bytes, host byte order. What addr, size and arg hold depends on the call:
 * docs/format/simgpu-log.md. */
struct plimsoll_sim_call {
    uint8_t call; /* index into the table of runtime/simgpu/calls.def */
    uint8_t device;
    uint16_t code;   /* result, CUDA's numbers */
    uint32_t thread; /* 1, 2, ... in order of first appearance */
    uint64_t addr;
    uint64_t size;
    uint64_t arg;
    uint64_t tick;
};

#define PLIMSOLL_SIM_LOG_MAGIC "PLIMSGL1"

/* Start of a log file, 64 bytes. */
struct plimsoll_sim_log_head {
    char magic[8];
    uint32_t version;
    uint32_t record_bytes;
    PLIMSOLL_SIM_COUNTER count; /* calls made, lost ones included */
    PLIMSOLL_SIM_COUNTER lost;  /* calls that found no room; always the last ones */
    uint32_t pid;
    uint32_t pad[7];
};

struct plimsoll_sim_usage {
    uint64_t total;      /* as cudaMemGetInfo says */
    uint64_t nvml_total; /* as NVML says */
    uint64_t external;   /* held by others, by configuration */
    uint64_t used;       /* by all processes, contexts and external included */
    uint64_t mine;       /* by this process, context included */
    uint64_t my_context; /* 0 without a context */
    uint64_t peak;       /* highest used since the books were made */
};

#define PLIMSOLL_SIM_BOOKS_MAGIC   "PLIMSIM1"
#define PLIMSOLL_SIM_DEVICES       16
#define PLIMSOLL_SIM_MISSING_NAMES 64

/* One device in the books file. Texts are NUL-terminated. */
struct plimsoll_sim_device {
    char key[24];  /* as on the command line, "a100-80gb" */
    char name[64]; /* as the driver reports it */
    uint64_t total, nvml_total;
    uint64_t context;  /* cost of a context for one process */
    uint64_t external; /* held by others, by configuration */
    uint64_t limit;    /* most one process may use; 0 for none */
    uint64_t peak;     /* highest use since the file was made, contexts and external included */
};

/* Start of the books file (PLIMSOLL_SIM_STATE): what may be read while the processes run and after.
 * Behind it are the parts that only the simulated device itself reads. */
struct plimsoll_sim_books {
    char magic[8];
    uint32_t n_devices;
    uint32_t n_missing; /* entry points that were called but are not simulated */
    struct plimsoll_sim_device device[PLIMSOLL_SIM_DEVICES];
    char missing[PLIMSOLL_SIM_MISSING_NAMES][64];
};

/** plimsoll_sim_set() - change a setting; 0, or 1 for an unknown key or a bad value. */
int plimsoll_sim_set(const char *key, const char *value);

/** plimsoll_sim_now() - simulated time in ticks. Events recorded at t are complete at t + lag. */
uint64_t plimsoll_sim_now(void);
void plimsoll_sim_advance(uint64_t ticks);

/** plimsoll_sim_stall_ns() - host time the cost model has added so far. */
uint64_t plimsoll_sim_stall_ns(void);

/** plimsoll_sim_log_count()/read()/clear() - the call log of this process, when it is on. read copies
 * up to n records from index first and returns how many. */
uint64_t plimsoll_sim_log_count(void);
uint64_t plimsoll_sim_log_read(uint64_t first, struct plimsoll_sim_call *out, uint64_t n);
void plimsoll_sim_log_clear(void);
const char *plimsoll_sim_call_name(int call);

/** plimsoll_sim_launches() - kernels launched so far (and not computed). */
uint64_t plimsoll_sim_launches(void);

/** plimsoll_sim_usage() - the books of a device; 0, or CUDA's error code. */
int plimsoll_sim_usage(int device, struct plimsoll_sim_usage *out);

#ifdef __cplusplus
}
#endif
#endif
