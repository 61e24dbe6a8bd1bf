/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DRYRUN_DRYRUN_H
#define PLIM_DRYRUN_DRYRUN_H

/*
 * Run a command on the simulated GPU and gather what it left behind.
 *
 *   setup     what to run and on which card, under which allocator settings
 *   process   one process of the program that imported PyTorch, as its start hook described it
 *   run       one run: how it ended, the books of the device, the processes
 *   outcome   what that means for the question "does it fit?"
 *
 * The command inherits standard input and error; standard output too unless it is asked to go to
 * standard error. Everything gathered lives in a temporary folder that plim_dryrun_clean() removes.
 * Linux only. Threads: one; SIGINT, SIGTERM and SIGCHLD are handled while a command runs.
 */

#include "base/arena.h"
#include "base/vec.h"

/* X(name, text for JSON). */
#define PLIM_DRYRUN_OUTCOME_MAP(X)                                                                 \
    X(FITS, "fits")                                                                                \
    X(OUT_OF_MEMORY, "out_of_memory")                                                              \
    X(FAILED, "failed")                                                                            \
    X(CRASHED, "crashed")                                                                          \
    X(TIMED_OUT, "timed_out")                                                                      \
    X(NO_CUDA, "no_cuda")                                                                          \
    X(CPU_BUILD, "cpu_build")

enum plim_dryrun_outcome {
#define PLIM__X(name, text) PLIM_DRYRUN_##name,
    PLIM_DRYRUN_OUTCOME_MAP(PLIM__X)
#undef PLIM__X
};

const char *plim_dryrun_outcome_text(enum plim_dryrun_outcome outcome);

struct plim_dryrun_setup {
    const char *const *command; /* [n_command] */
    size_t n_command;
    const char *gpu;   /* as the simulated device reads it */
    const char *conf;  /* allocator settings, or NULL: the environment's */
    uint64_t external; /* bytes that others hold */
    uint64_t context;  /* bytes a context costs, when has_context */
    bool has_context;
    uint64_t kernel_ns;  /* real time that each kernel takes; 0: none */
    uint64_t timeout_ns; /* 0: none */
    uint64_t history;    /* most trace entries; 0: the hook's default */
    bool stdout_to_stderr;
};

struct plim_dryrun_process { /* texts arena-owned, "" when unknown */
    uint64_t pid;
    const char *torch; /* "2.14.1+cu130" */
    const char *build; /* "cuda 13.0", "cpu", "rocm" */
    const char *command;
    const char *error;    /* the exception that ended it */
    const char *snapshot; /* path of the last snapshot, or NULL */
    const char *oom_snapshot;
    bool used_cuda;
    bool ended; /* it came to its end by itself */
    uint64_t device;
    uint64_t peak_allocated, peak_reserved;
    uint64_t allocated, reserved;       /* at the last look */
    uint64_t device_total, device_free; /* then */
    uint64_t alloc_retries;
    uint64_t ooms;                  /* failures, caught ones included */
    uint64_t oom_request, oom_free; /* of the last one */
    uint64_t oom_reserved;
};

struct plim_dryrun_run {
    const char *gpu;  /* as asked */
    const char *conf; /* or NULL */
    const char *card; /* the device's name, "" when no process used it */
    uint64_t total, nvml_total, context, external, device_peak; /* of device 0; 0 when unused */
    uint32_t n_devices;
    int exit_status; /* of the command, when it was not ended by a signal */
    int signal;      /* that ended it, or 0 */
    bool stopped;    /* the user ended it: a signal was passed on */
    uint64_t wall_ns;
    enum plim_dryrun_outcome outcome;
    PLIM_VEC(struct plim_dryrun_process) processes; /* by pid */
    uint32_t main;           /* index of the one with the highest peak, or PLIM_NO_ID */
    const char *missing[64]; /* entry points that were called and are not simulated */
    uint32_t n_missing;
    uint32_t nominal_gib; /* size as sold, when a search chose it; else 0 */
    bool has_snapshot;    /* its snapshot was kept for the user */
    char folder[256];     /* where the snapshots are */
};

/**
 * plim_dryrun_run() - run the command to its end.
 * @arena: for the texts of *out; free the rest with plim_dryrun_clean().
 * A command that fails is no error: see outcome.
 * Errors: PLIM_E_NOINPUT (the command or the simulated device is not there), PLIM_E_USAGE (no such card),
 * PLIM_E_OS, PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_dryrun_run(const struct plim_dryrun_setup *setup,
                                               struct plim_arena *arena,
                                               struct plim_dryrun_run *out, struct plim_err *err);

/** plim_dryrun_clean() - remove the run's folder and free its list. */
void plim_dryrun_clean(struct plim_dryrun_run *run);

/** plim_dryrun_fits() - it ran to its end, and the device was used. */
bool plim_dryrun_fits(const struct plim_dryrun_run *run);

/** plim_dryrun_card_key() - key of the i-th card known by name, smallest first, or NULL behind the last;
 * *total is its memory in bytes. */
const char *plim_dryrun_card_key(uint32_t i, const char **name, uint64_t *total);

/** plim_dryrun_is_card() - whether the first n letters are the key of a card. */
bool plim_dryrun_is_card(const char *key, size_t n);

/** plim_dryrun_check_gpu() - whether the text names cards or sizes; PLIM_E_USAGE with the nearest key. */
PLIM_MUST_USE enum plim_status plim_dryrun_check_gpu(const char *gpu, struct plim_err *err);

/* Folders of the simulated device. */
struct plim_dryrun_place {
    const char *core;   /* the shared object */
    const char *shells; /* folder of the vendor SONAMEs */
    const char *start;  /* folder of the Python start hook */
};

/** plim_dryrun_find() - beside the program in a build folder, or where it was installed;
 * $PLIMSOLL_SIMGPU_DIR wins. Errors: PLIM_E_NOINPUT. */
PLIM_MUST_USE enum plim_status
plim_dryrun_find(struct plim_arena *arena, struct plim_dryrun_place *out, struct plim_err *err);

/** plim_dryrun_environment() - the environment of the command: *out is NULL-terminated, arena-owned. */
PLIM_MUST_USE enum plim_status plim_dryrun_environment(const struct plim_dryrun_setup *setup,
                                                       const struct plim_dryrun_place *place,
                                                       const char *folder, struct plim_arena *arena,
                                                       char ***out, struct plim_err *err);

/** plim_dryrun_gather() - read what the processes and the device left in run->folder. */
PLIM_MUST_USE enum plim_status plim_dryrun_gather(struct plim_dryrun_run *run,
                                                  struct plim_arena *arena, struct plim_err *err);

#endif
