/* SPDX-License-Identifier: Apache-2.0 */
/* The words of event.h's tables. */

#include <plimsoll/shm.h>

const char *plim_event_kind_text(unsigned kind)
{
    static const char *const words[] = {
#define PLIM__X(name, text, sign) text,
        PLIM_EVENT_MAP(PLIM__X)
#undef PLIM__X
    };
    return kind < PLIM_EVENT_KINDS ? words[kind] : "unknown";
}

const char *plim_owner_text(unsigned owner)
{
    static const char *const words[] = {
#define PLIM__X(name, text, library) text,
        PLIM_OWNER_MAP(PLIM__X)
#undef PLIM__X
    };
    return owner < PLIM_OWNERS ? words[owner] : "unknown";
}
