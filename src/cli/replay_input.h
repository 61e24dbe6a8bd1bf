/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_REPLAY_INPUT_H
#define PLIM_CLI_REPLAY_INPUT_H

/* What `replay` and `tune` share: from the arguments to requests, settings and a device size. */

#include "cli/reading.h"
#include "cli/verbs.h"
#include "format/snapshot_read.h"
#include "replay/replay.h"

struct plim_replay_input {
    struct plim_snapshot snapshot;
    struct plim_requests requests;
    struct plim_torch_version version;
    uint64_t capacity; /* bytes; 0: no limit */
    uint64_t external;
    double scale;            /* 1: as recorded */
    const char *capacity_by; /* "given", "computed", "estimated", "unknown" */
};

/* The options by which the two verbs say that. */
struct plim_replay_words {
    const char *path;
    struct plim_read_limits limits;
    struct plim_opt_u64 device;
    struct plim_opt_u64 device_memory;
    struct plim_opt_u64 external;
    struct plim_opt_real scale;
    const char *torch_version; /* NULL: as recorded */
};

/* The words of the options of either verb. */
#define PLIM_REPLAY_WORDS(file, o)                                                                 \
    {                                                                                              \
        .path = (file), .limits = PLIM_READ_LIMITS(o), .device = (o)->device,                      \
        .device_memory = (o)->device_memory, .external = (o)->external, .scale = (o)->scale,       \
        .torch_version = (o)->torch_version,                                                       \
    }

/** plim_replay_input() - read and prepare. Undo with plim_replay_input_fini(). */
PLIM_MUST_USE enum plim_status plim_replay_input(const struct plim_replay_words *words,
                                                 struct plim_replay_input *out,
                                                 struct plim_err *err);
void plim_replay_input_fini(struct plim_replay_input *input);

#endif
