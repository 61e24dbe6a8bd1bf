/* SPDX-License-Identifier: Apache-2.0 */
/* See prefix.h. */

#include "serving/prefix.h"

#include "base/num.h"

void plim__prefix_init(struct plim__prefix *p)
{
    *p = (struct plim__prefix){.oldest = PLIM__PREFIX_NONE, .newest = PLIM__PREFIX_NONE};
}

void plim__prefix_fini(struct plim__prefix *p)
{
    plim_map_fini(&p->index);
    plim_vec_fini(&p->entries);
    plim_vec_fini(&p->unused);
}

static uint64_t key_of(const struct plim__prefix_list *list, uint32_t i)
{
    return plim_hash_u64(list->hashes[i] ^ list->salt) >> 1; /* never PLIM_MAP_NO_KEY */
}

static struct plim__prefix_entry *find(const struct plim__prefix *p,
                                       const struct plim__prefix_list *list, uint32_t i)
{
    const uint64_t *at = plim_map_get(&p->index, key_of(list, i));
    return at ? &p->entries.items[*at] : NULL;
}

uint32_t plim__prefix_hits(const struct plim__prefix *p, const struct plim__prefix_list *list,
                           uint32_t most, uint32_t *idle)
{
    uint32_t n = 0;
    *idle = 0;
    while (n < list->n && n < most) {
        const struct plim__prefix_entry *e = find(p, list, n);
        if (!e) {
            break;
        }
        *idle += e->held == 0;
        n++;
    }
    return n;
}

/* Out of the list of idle entries. */
static void wake(struct plim__prefix *p, struct plim__prefix_entry *e)
{
    uint32_t *before =
        e->older == PLIM__PREFIX_NONE ? &p->oldest : &p->entries.items[e->older].newer;
    uint32_t *behind =
        e->newer == PLIM__PREFIX_NONE ? &p->newest : &p->entries.items[e->newer].older;
    *before = e->newer;
    *behind = e->older;
    p->idle--;
}

/* To the end of the list of idle entries: used last. */
static void rest(struct plim__prefix *p, struct plim__prefix_entry *e)
{
    uint32_t at = (uint32_t)(e - p->entries.items);
    e->older = p->newest;
    e->newer = PLIM__PREFIX_NONE;
    *(p->newest == PLIM__PREFIX_NONE ? &p->oldest : &p->entries.items[p->newest].newer) = at;
    p->newest = at;
    p->idle++;
}

void plim__prefix_hold(struct plim__prefix *p, const struct plim__prefix_list *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct plim__prefix_entry *e = find(p, list, i);
        if (e && e->held++ == 0) {
            wake(p, e);
            p->held++;
        }
    }
}

void plim__prefix_drop(struct plim__prefix *p, const struct plim__prefix_list *list, uint32_t n)
{
    for (uint32_t i = n; i-- > 0;) { /* the end of a prefix is of less use than its beginning */
        struct plim__prefix_entry *e = find(p, list, i);
        if (e && --e->held == 0) {
            p->held--;
            rest(p, e);
        }
    }
}

enum plim_status plim__prefix_keep(struct plim__prefix *p, const struct plim__prefix_list *list,
                                   uint32_t from, uint32_t to, struct plim_err *err)
{
    for (uint32_t i = to; i-- > from;) {
        if (find(p, list, i)) {
            continue;
        }
        PLIM_TRY(plim_vec_reserve(&p->entries, 1, err));
        PLIM_TRY(plim_vec_reserve(&p->unused, p->entries.n + 1 - p->unused.n,
                                  err)); /* for a later shrink */
        bool again = p->unused.n > 0;
        uint32_t at = again ? p->unused.items[p->unused.n - 1] : (uint32_t)p->entries.n;
        PLIM_TRY(plim_map_put(&p->index, key_of(list, i), at, err));
        p->unused.n -= again;
        p->entries.n += !again;
        p->entries.items[at] = (struct plim__prefix_entry){.key = key_of(list, i)};
        rest(p, &p->entries.items[at]);
    }
    return PLIM_OK;
}

void plim__prefix_shrink(struct plim__prefix *p, uint64_t most)
{
    while (p->idle > most) {
        uint32_t at = p->oldest;
        wake(p, &p->entries.items[at]);
        (void)plim_map_take(&p->index, p->entries.items[at].key, NULL);
        p->unused.items[p->unused.n++] = at;
    }
}
