/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DETECT_REPLAY_H
#define PLIM_DETECT_REPLAY_H

/*
 * A recorded history through the detector: lines of plimsoll.sample/1 (device/sample_json.h), as the
 * samples.jsonl of an incident, one observation each. Their times are the clock: a line that is older than
 * the one before it takes no time. Threads: one at a time.
 */

#include "base/file.h"
#include "detect/detect.h"

struct plim_replayed {
    struct plim_observation last;           /* its sample is the newest line's; fini below */
    PLIM_VEC(struct plim_finding) findings; /* all that were raised, each as it was last told */
    uint64_t samples;                       /* lines */
};

/** plim_detect_replay() - all lines of a source through the detector.
 * Errors: PLIM_E_DATA a line that is no sample, with its number; PLIM_E_BUDGET a line of more than 64 MiB;
 * those of the source; PLIM_E_NOMEM. `out` is to be emptied in any case. */
PLIM_MUST_USE enum plim_status plim_detect_replay(struct plim_detector *detector,
                                                  struct plim_source *source,
                                                  struct plim_replayed *out, struct plim_err *err);
void plim_replayed_fini(struct plim_replayed *replayed);

#endif
