/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What lives of a program have held before. A server that is restarted fills its caches again; the first
 * time nobody can know where that ends, the second time it is known.
 */

#include "detect/detect_int.h"

#include <stdio.h>

static bool same(const struct plim_level *l, const struct plim_tracked *t)
{
    return strcmp(l->name, t->subject.process) == 0 &&
           strcmp(l->device_uuid, t->subject.device_uuid) == 0;
}

void plim__level_note(struct plim_detector *d, const struct plim_tracked *t)
{
    struct plim_level *at = &d->levels[0];
    bool leaked = t->standing[PLIM_FINDING_LEAK].id != 0 || t->oom_ns != 0;
    if (t->subject.pid == 0 || t->subject.process[0] == '\0' || leaked || t->settled_ns == 0 ||
        d->now_ns - t->first_ns < PLIM_HOUR) {
        return;
    }
    for (unsigned i = 0; i < PLIM_LINEAGES; i++) {
        if (same(&d->levels[i], t)) {
            at = &d->levels[i];
            break;
        }
        at = d->levels[i].newest_ns < at->newest_ns ? &d->levels[i] : at;
    }
    if (!same(at, t)) {
        *at = (struct plim_level){0};
        memcpy(at->name, t->subject.process, sizeof(at->name));
        memcpy(at->device_uuid, t->subject.device_uuid, sizeof(at->device_uuid));
    }
    at->bytes = plim_max_u64(at->bytes, t->held_last);
    at->newest_ns = d->now_ns;
}

const struct plim_level *plim__level_of(const struct plim_detector *d, const struct plim_tracked *t)
{
    for (unsigned i = 0; i < PLIM_LINEAGES && t->subject.process[0] != '\0'; i++) {
        if (same(&d->levels[i], t)) {
            return &d->levels[i];
        }
    }
    return NULL;
}
