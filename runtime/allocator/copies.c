/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of device memory on the host. */

#include "copies.h"

#include <sys/mman.h>

struct plim_copy { /* the block's bytes follow */
    struct plim_copy *next;
    uint64_t pool, addr, size;
};

struct taking {
    struct plim_copies *copies;
    struct plim_cuda_device *device;
    uint64_t pool;
    bool failed;
};

static void forget(struct plim_copy *c)
{
    munmap(c, sizeof *c + c->size);
}

static bool take_one(void *ctx, const struct plim_engine_view *v)
{
    struct taking *t = ctx;
    if (v->pool != t->pool || v->paused || v->state != PLIM_ENGINE_LIVE) {
        return true;
    }
    struct plim_copy *c =
        mmap(NULL, sizeof *c + v->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (c == MAP_FAILED) {
        t->failed = true;
        return false;
    }
    *c = (struct plim_copy){t->copies->first, v->pool, v->addr, v->size};
    t->copies->first = c;
    t->failed = !plim_cuda_to_host(t->device, c + 1, v->addr, v->size);
    return !t->failed;
}

/* Do something with the copies of a pool, and forget them. */
static void drain(struct plim_copies *copies, uint64_t pool, struct plim_cuda_device *device)
{
    struct plim_copy **link = &copies->first;
    while (*link) {
        struct plim_copy *c = *link;
        if (c->pool != pool) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        if (device) {
            plim_cuda_to_device(device, c->addr, c + 1, c->size);
        }
        forget(c);
    }
}

bool plim_copies_take(struct plim_copies *copies, struct plim_cuda_device *device,
                      const struct plim_engine *engine, uint64_t pool)
{
    for (const struct plim_copy *c = copies->first; c; c = c->next) {
        if (c->pool == pool) {
            return true;
        }
    }
    struct taking t = {.copies = copies, .device = device, .pool = pool};
    plim_engine_walk(engine, take_one, &t);
    if (t.failed) {
        drain(copies, pool, NULL);
    }
    return !t.failed;
}

void plim_copies_give(struct plim_copies *copies, struct plim_cuda_device *device, uint64_t pool)
{
    drain(copies, pool, device);
}
