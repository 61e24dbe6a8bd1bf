/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_OBSERVE_PLACE_H
#define PLIM_OBSERVE_PLACE_H

/* Something that is looked at besides drivers, as the user said it: an engine's address, a log. */

#include <stddef.h>

struct plim_place {
    const char *name; /* NULL: it stands in front, "NAME=PLACE", or follows from the place */
    const char *place;
};

#define PLIM_PLACE_NAME 64 /* room for a name */

/** plim_place_split() - the place itself; `name` receives its name, or "" when nobody said one. A name in front has
 * letters, digits and ._- only. */
const char *plim_place_split(const struct plim_place *place, char name[PLIM_PLACE_NAME]);

#endif
