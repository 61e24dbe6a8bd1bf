/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_CARD_H
#define PLIM_SERVING_CARD_H

/*
 * A card that somebody wants to serve on: what the driver reports and what is gone before an engine starts.
 * The table is the simulated device's (runtime/simgpu/cards.def, with sources); slices (MIG) and devices whose
 * memory is the host's follow from rows of cards.def here. Sizes in bytes. Threads: pure.
 */

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

struct plim_card {
    const char *key;   /* "h100-80gb"; "custom" when given by numbers */
    const char *name;  /* as the driver reports it */
    uint64_t total;    /* cudaMemGetInfo */
    uint64_t nvml;     /* what nvidia-smi prints: engines choose defaults by it */
    uint32_t cc;       /* compute capability * 10 */
    uint32_t sms;      /* multiprocessors */
    uint64_t context;  /* of one process: context and modules */
    uint64_t external; /* held by other processes */
    bool unified;      /* memory is the host's: what is free is what the system has available */
    bool slice;        /* a MIG instance */
    const char *source;
};

/**
 * plim_card_find() - by key ("h100-80gb"), by "KEY/PROFILE" for a MIG instance ("h100-80gb/3g.40gb").
 * Errors: PLIM_E_USAGE unknown; the hint names the nearest keys.
 */
PLIM_MUST_USE enum plim_status plim_card_find(const char *text, struct plim_card *out,
                                              struct plim_err *err);

/** plim_card_like() - the driver's name of the whole card with that capability, as many multiprocessors and
 * memory within a tenth; NULL when none is known. */
const char *plim_card_like(const struct plim_card *card);

/** plim_card_at() - the i-th whole card, by size; false behind the last. */
bool plim_card_at(size_t i, struct plim_card *out);

#endif
