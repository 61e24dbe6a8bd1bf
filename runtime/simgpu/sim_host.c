/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that CUDA knows: pinned, registered, managed. And copies.
 *
 * These ranges are real memory, because programs write to them and read copies back (and some read
 * pinned memory through its device pointer). They are mapped lazily, so a big pool costs only what is
 * touched. Managed memory is host memory that can be charged to a device by a prefetch. Ranges hang
 * in a treap by address for "which range holds this pointer". Expected O(log n).
 */

#include "sim.h"
#include <string.h>
#include <sys/mman.h>

struct host {
    uint64_t start, bytes;
    uint32_t left, right, heap, self;
    int32_t resident; /* managed: the device it is charged to, or -1 */
    uint8_t kind;
};

static struct sim_pool hosts = SIM_POOL(struct host);
static uint32_t root, seed = 1;

static struct host *at(uint32_t i)
{
    return sim_pool_at(&hosts, i);
}

/* Split by address: below `start` to *l, the rest to *r. */
static void split(uint32_t t, uint64_t start, uint32_t *l, uint32_t *r)
{
    if (t == 0) {
        *l = *r = 0;
    } else if (at(t)->start < start) {
        *l = t;
        split(at(t)->right, start, &at(t)->right, r);
    } else {
        *r = t;
        split(at(t)->left, start, l, &at(t)->left);
    }
}

static uint32_t join(uint32_t l, uint32_t r)
{
    if (l == 0 || r == 0) {
        return l + r;
    }
    if (at(l)->heap > at(r)->heap) {
        at(l)->right = join(at(l)->right, r);
        return l;
    }
    at(r)->left = join(l, at(r)->left);
    return r;
}

static struct host *find(uint64_t p)
{
    struct host *best = NULL;
    for (uint32_t t = root; t != 0;) {
        struct host *h = at(t);
        if (h->start <= p) {
            best = h;
            t = h->right;
        } else {
            t = h->left;
        }
    }
    return best != NULL && p - best->start < best->bytes ? best : NULL;
}

static int insert(uint64_t start, uint64_t bytes, enum sim_host_kind kind)
{
    uint32_t self, l, r;
    struct host *h = sim_pool_take(&hosts, &self);
    if (h == NULL) {
        return SIM_E_NOMEM;
    }
    seed = seed * 1664525u + 1013904223u;
    *h = (struct host){.start = start,
                       .bytes = bytes,
                       .heap = seed,
                       .self = self,
                       .resident = -1,
                       .kind = (uint8_t)kind};
    split(root, start, &l, &r);
    root = join(join(l, self), r);
    return SIM_OK;
}

static void erase(const struct host *h)
{
    uint32_t l, rest, self, r;
    split(root, h->start, &l, &rest);
    split(rest, h->start + 1, &self, &r);
    root = join(l, r);
    sim_pool_give(&hosts, self);
}

int sim_host_alloc(uint64_t bytes, enum sim_host_kind kind, void **out)
{
    if (bytes == 0) {
        *out = NULL;
        return SIM_OK;
    }
    if (bytes > (uint64_t)1 << 46) {
        return SIM_E_NOMEM;
    }
    bytes = (bytes + 4095) & ~(uint64_t)4095;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) {
        return SIM_E_NOMEM;
    }
    int rc = insert((uint64_t)(uintptr_t)p, bytes, kind);
    if (rc == SIM_OK) {
        *out = p;
    } else {
        (void)munmap(p, bytes);
    }
    return rc;
}

int sim_host_free(void *p, enum sim_host_kind kind)
{
    struct host *h = find((uint64_t)(uintptr_t)p);
    if (h == NULL || h->start != (uint64_t)(uintptr_t)p || h->kind != kind) {
        return SIM_E_VALUE;
    }
    uint64_t bytes = h->bytes;
    (void)sim_host_prefetch(p, -1);
    erase(h);
    (void)munmap(p, bytes);
    return SIM_OK;
}

int sim_host_register(void *p, uint64_t bytes)
{
    uint64_t start = (uint64_t)(uintptr_t)p;
    if (p == NULL || bytes == 0 || sim_is_device(p)) {
        return SIM_E_VALUE;
    }
    if (find(start) != NULL || find(start + bytes - 1) != NULL) {
        return SIM_E_REGISTERED;
    }
    return insert(start, bytes, SIM_HOST_REGISTERED);
}

int sim_host_unregister(void *p)
{
    struct host *h = find((uint64_t)(uintptr_t)p);
    if (h == NULL || h->start != (uint64_t)(uintptr_t)p || h->kind != SIM_HOST_REGISTERED) {
        return SIM_E_NOT_REGISTERED;
    }
    erase(h);
    return SIM_OK;
}

enum sim_host_kind sim_host_find(const void *p, uint64_t *base, uint64_t *size)
{
    const struct host *h = find((uint64_t)(uintptr_t)p);
    if (h == NULL) {
        return SIM_HOST_NONE;
    }
    if (base != NULL) {
        *base = h->start;
        *size = h->bytes;
    }
    return (enum sim_host_kind)h->kind;
}

int sim_host_prefetch(const void *p, int device)
{
    struct host *h = find((uint64_t)(uintptr_t)p);
    if (h == NULL || h->kind != SIM_HOST_MANAGED || h->resident == device) {
        return h == NULL ? SIM_E_VALUE : SIM_OK;
    }
    uint64_t bytes = (h->bytes + SIM_PAGE - 1) & ~(SIM_PAGE - 1);
    int rc = device < 0 ? SIM_OK : sim_charge(device, bytes);
    if (rc == SIM_OK) {
        if (h->resident >= 0) {
            sim_uncharge(h->resident, bytes);
        }
        h->resident = device;
    }
    return rc;
}

void sim_copy(void *to, const void *from, uint64_t bytes)
{
    if (sim_is_device(to) || to == from || bytes == 0) {
        return;
    }
    if (sim_is_device(from)) {
        memset(to, 0, bytes);
    } else {
        memmove(to, from, bytes);
    }
}

void sim_fill(void *to, int value, uint64_t bytes)
{
    if (!sim_is_device(to) && bytes != 0) {
        memset(to, value, bytes);
    }
}
