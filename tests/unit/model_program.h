/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_MODEL_PROGRAM_H
#define PLIM_TESTS_MODEL_PROGRAM_H

/*
 * A random program on the exact allocator model: its trace, its heap at the end, and its heap at some positions on the
 * way, to compare what is reconstructed with.
 */

#include "alloc/torch.h"
#include "heap/moment.h"
#include "unit.h"

#define STEPS    4000
#define SAMPLES  40
#define LIVE_MAX 300

struct program {
    struct plim_device device; /* trace and heap at the end */
    struct plim_torch *torch;
    struct plim_devmodel driver;
    uint64_t live[LIVE_MAX];
    size_t n_live;
    uint64_t random;
    size_t sample_at[SAMPLES];
    struct plim_heap sample[SAMPLES];
    size_t n_samples;
};

/* Large: not on the stack. Undo with end_program(). */
void run_program(struct program *p, const char *settings, uint64_t seed);
void end_program(struct program *p);

#endif
