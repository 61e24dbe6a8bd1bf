/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_RECORDED_H
#define PLIM_ALLOC_RECORDED_H

/* The settings under which a snapshot was taken, in the words of conf.h. */

#include "alloc/conf.h"
#include "heap/snapshot.h"

/**
 * plim_recorded_conf() - settings from the snapshot's allocator_settings, read as `version` reads them.
 * Returns false, with the defaults of that release, when the snapshot has none or they cannot be parsed.
 * Not recorded, so left at their defaults unless the settings text names them: large_segment_size_mb,
 * max_non_split_rounding_mb, a fraction set by a call.
 */
bool plim_recorded_conf(const struct plim_snapshot *snapshot, struct plim_torch_version version,
                        struct plim_conf *conf);

#endif
