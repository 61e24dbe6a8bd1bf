/* SPDX-License-Identifier: Apache-2.0 */

/* Names in front of places. */

#include "observe/place.h"

#include "observe/printable.h"

#define NAME_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

const char *plim_place_split(const struct plim_place *place, char name[PLIM_PLACE_NAME])
{
    struct plim_str said = {"", 0};
    const char *rest = place->place;
    size_t n = strspn(rest, NAME_BYTES);
    if (place->name != NULL) {
        said = plim_str_from(place->name);
    } else if (n > 0 && rest[n] == '=') {
        said = (struct plim_str){rest, n};
        rest += n + 1;
    }
    plim_printable(name, PLIM_PLACE_NAME, said);
    return rest;
}
