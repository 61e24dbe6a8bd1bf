/* SPDX-License-Identifier: Apache-2.0 */
/* Sums by owner at one position; see outside.h. */

#include "heap/outside.h"

static bool is_allocator(const struct plim_outside *o, unsigned owner)
{
    return (o->allocator >> owner & 1u) != 0;
}

struct plim_outside_sums plim_outside_at(const struct plim_outside *o, size_t position)
{
    struct plim_outside_sums sums = {0};
    for (size_t i = 0; i < o->changes.n && o->changes.items[i].position <= position; i++) {
        const struct plim_outside_change *c = &o->changes.items[i];
        if (c->owner == PLIM_OUTSIDE_OTHERS) {
            sums.others = c->bytes;
        } else if (c->owner < PLIM_OWNERS) {
            sums.bytes[c->owner] = c->bytes;
        }
    }
    for (unsigned owner = 0; owner < PLIM_OWNERS; owner++) {
        *(is_allocator(o, owner) ? &sums.allocator : &sums.outside) += sums.bytes[owner];
    }
    for (size_t i = 0; i < o->samples.n; i++) {
        if (i == 0 || o->samples.items[i].position <= position) {
            sums.sample = o->samples.items[i];
            sums.has_sample = true;
        }
    }
    return sums;
}

void plim_outside_fini(struct plim_outside *o)
{
    plim_vec_fini(&o->changes);
    plim_vec_fini(&o->samples);
}
