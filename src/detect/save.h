/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DETECT_SAVE_H
#define PLIM_DETECT_SAVE_H

/* Names in the text of a saved detector, for its writer (save.c) and its reader (load.c). */

#include "detect/detect_int.h"

#define PLIM_DETECTOR_SCHEMA "plimsoll.detector/1"

static const char *const plim__scale_keys[PLIM_SCALES] = {"minutes", "tens", "hours"};

static const char *const plim__followed_keys[PLIM_FOLLOWED] = {
    [PLIM_FOLLOWED_LIVE] = "live", [PLIM_FOLLOWED_STRANDED] = "stranded",
    [PLIM_FOLLOWED_HELD] = "held", [PLIM_FOLLOWED_OUTSIDE] = "outside",
    [PLIM_FOLLOWED_USED] = "used", [PLIM_FOLLOWED_OTHERS] = "others",
};

#endif
