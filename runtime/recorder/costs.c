/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What no call asks for by size: contexts, modules, graphs, limits, arrays.
 *
 * Measured by the difference in used bytes around the call, less what our own books gained meanwhile
 * (another thread's allocations). Other processes on the device disturb that, so such events are marked
 * as estimates; a context is asked of NVML by process where it can be. Arrays are computed from their
 * format. Kernels that a lazily loaded module uploads later are not seen: they show in the remainder
 * between the books and NVML.
 */

#include "record.h"

#define LOOKS 16 /* at NVML, at most, for one context */
#define ALL_IN_CONTEXT                                                                             \
    (1u << PLIM__MEMORY | 1u << PLIM__ARRAY | 1u << PLIM__MODULE | 1u << PLIM__GRAPH |             \
     1u << PLIM__EXTERNAL | 1u << PLIM__POOL)

static unsigned row(unsigned device)
{
    return device < PLIM_SHM_DEVICES - 1 ? device : PLIM_SHM_DEVICES - 1;
}

/* ---- differences */

void plim__measure(struct plim__call *call)
{
    bool below =
        call->level == PLIM__RUNTIME && __atomic_load_n(&plim__rec.below, __ATOMIC_RELAXED) == 1;
    unsigned device = plim__device(call);
    /* Asking could itself begin a context: only when there is one. */
    if (plim__rec.measure && !below &&
        __atomic_load_n(&plim__rec.contexts[row(device)], __ATOMIC_RELAXED) != 0) {
        call->measuring = plim__used(&call->used);
        call->charged = plim__charged(device);
    }
}

/* Bytes that the call cost beyond what the books gained; 0 when not measured. */
static uint64_t cost(const struct plim__call *call)
{
    uint64_t used;
    if (!call->measuring || call->result != 0 || !plim__used(&used)) {
        return 0;
    }
    int64_t more = (int64_t)(used - call->used);
    int64_t booked = (int64_t)(plim__charged(plim__device(call)) - call->charged);
    return more > booked ? (uint64_t)(more - booked) : 0;
}

void plim__measured(struct plim__call *call, unsigned cls, uint64_t key)
{
    plim__took(call, cls, key, cost(call), 0);
}

/* Something that exists grew by `bytes`. */
static void grew(struct plim__call *call, unsigned cls, uint64_t key, uint64_t bytes, unsigned kind,
                 uint64_t addr, uint64_t aux)
{
    struct plim__live *found;
    struct plim__who who = plim__who(call);
    struct plim__shard *shard = plim__live_lock(cls, key, &found);
    if (found != NULL) {
        found->size += bytes;
        who = (struct plim__who){found->library, found->owner, found->device};
    }
    plim__live_unlock(shard);
    bytes = found != NULL ? bytes : 0; /* nothing would ever give it back */
    plim__charge(who.device, who.owner, (int64_t)bytes, (int64_t)bytes, 0);
    plim__tell(call, &who, kind, addr, bytes, aux, PLIM_EVENT_ESTIMATE);
}

void plim__limit_set(struct plim__call *call, uint64_t limit, uint64_t value)
{
    if (plim__skip(call)) {
        return;
    }
    struct plim__who who = plim__who(call);
    if (call->result != 0) {
        plim__failed(call, &who, 0);
    } else {
        grew(call, PLIM__CONTEXT, PLIM__PRIMARY(who.device), cost(call), PLIM_EVENT_LIMIT, limit,
             value);
    }
}

/* ---- graphs: executable storage at instantiation, pools of memory nodes at the first launch */

void plim__graph_begins(struct plim__call *call, const void *exec)
{
    struct plim__live *found;
    struct plim__shard *shard = plim__live_lock(PLIM__GRAPH, PLIM__KEY(exec), &found);
    bool first = found != NULL && found->extra == 0;
    if (first) {
        found->extra = 1;
    }
    plim__live_unlock(shard);
    if (first) {
        plim__measure(call);
    }
}

void plim__graph_ran(struct plim__call *call, const void *exec)
{
    if (call->result != 0) {
        if (!plim__skip(call)) {
            struct plim__who who = plim__who(call);
            plim__failed(call, &who, 0);
        }
        return;
    }
    uint64_t bytes = cost(call);
    if (bytes != 0 && !plim__skip(call)) {
        grew(call, PLIM__GRAPH, PLIM__KEY(exec), bytes, PLIM_EVENT_GRAPH, PLIM__KEY(exec), 0);
    }
}

/* ---- contexts */

void plim__context_begins(struct plim__call *call, int device)
{
    bool whole;
    bool known = device < 0 ||
                 __atomic_load_n(&plim__rec.contexts[row((unsigned)device)], __ATOMIC_RELAXED) != 0;
    call->measuring =
        plim__rec.measure && !known && plim__nvml_used((unsigned)device, &call->used, &whole);
}

static uint64_t context_cost(const struct plim__call *call, unsigned device)
{
    uint64_t used;
    bool whole;
    if (!call->measuring || !plim__nvml_used(device, &used, &whole)) {
        return 0;
    }
    uint64_t before = whole ? call->used : plim__charged(device);
    return used > before ? used - before : 0;
}

void plim__context_made(struct plim__call *call, uint64_t key, int device)
{
    struct plim__live *found;
    struct plim__who who = plim__who(call);
    who.device = device < 0 ? PLIM_DEVICE_NONE : (unsigned)device;
    if (call->result != 0) {
        plim__failed(call, &who, 0);
        return;
    }
    struct plim__shard *shard = plim__live_lock(PLIM__CONTEXT, key, &found);
    bool again = found != NULL;
    if (again) {
        found->extra++;
    }
    plim__live_unlock(shard);
    if (!again) {
        struct plim__live live = plim__fresh(&who, PLIM__CONTEXT, PLIM_EVENT_CONTEXT, key,
                                             context_cost(call, who.device), 1);
        plim__count_context(who.device, 1);
        plim__take(call, &live, 0, PLIM_EVENT_ESTIMATE);
    }
}

/*
 * What this process uses beyond its books. Threads that are just allocating or releasing can only make
 * it look larger (allocations are booked after the real call, releases before), so the least of some
 * looks is the best one.
 */
static uint64_t beyond_books(unsigned device)
{
    uint64_t least = UINT64_MAX, used;
    bool whole;
    for (int looks = 0, same = 0; looks < LOOKS && same < 3; looks++) {
        if (!plim__nvml_used(device, &used, &whole) || whole) {
            return 0;
        }
        uint64_t charged = plim__charged(device);
        uint64_t more = used > charged ? used - charged : 0;
        same = more == least ? same + 1 : more < least ? 0 : same;
        least = more < least ? more : least;
    }
    return least;
}

void plim__context_noticed(struct plim__call *call, unsigned device)
{
    if (device == PLIM_DEVICE_NONE ||
        __builtin_expect(__atomic_load_n(&plim__rec.contexts[row(device)], __ATOMIC_RELAXED) != 0,
                         1) ||
        plim__count_context(device, 1) != 1) {
        return;
    }
    struct plim__who who = plim__who(call);
    who.device = device;
    struct plim__live live =
        plim__fresh(&who, PLIM__CONTEXT, PLIM_EVENT_CONTEXT, PLIM__PRIMARY(device),
                    plim__rec.measure ? beyond_books(device) : 0, 1);
    plim__take(call, &live, 0, PLIM_EVENT_ESTIMATE | PLIM_EVENT_TAIL);
}

/* Everything that lived in the last context of a device goes with it. */
static void empty(struct plim__call *call, unsigned device)
{
    struct plim__live live;
    uint32_t cursor = 0;
    while (plim__live_pop(device, ALL_IN_CONTEXT, &cursor, &live)) {
        plim__drop(call, &live, PLIM_EVENT_TAIL);
    }
}

void plim__context_released(struct plim__call *call, uint64_t key, bool at_once)
{
    struct plim__live *found, gone = {0};
    if (call->result != 0 || plim__skip(call)) {
        return;
    }
    struct plim__shard *shard = plim__live_lock(PLIM__CONTEXT, key, &found);
    if (found != NULL && (at_once || --found->extra == 0)) {
        gone = *found;
        plim__live_remove(shard, found);
    }
    plim__live_unlock(shard);
    if (gone.cls != 0) {
        if (plim__count_context(gone.device, -1) == 0) {
            empty(call, gone.device);
        }
        plim__drop(call, &gone, 0);
    }
}

uint32_t plim__count_context(unsigned device, int by)
{
    return __atomic_add_fetch(&plim__rec.contexts[row(device)], (uint32_t)by, __ATOMIC_RELAXED);
}

/* ---- arrays */

/* Bits of one channel (of the whole element for formats that say how many channels they have; then
 * *channels becomes 1). Source: CUarray_format in cuda.h 13.0. */
static unsigned format_bits(unsigned format, unsigned *channels)
{
    switch (format) {
    case 0x02: /* 16-bit integers and half */
    case 0x09:
    case 0x10:
        return 16;
    case 0x03: /* 32-bit integers and float */
    case 0x0a:
    case 0x20:
        return 32;
    default:
        break;
    }
    if (format >= 0xc0 && format <= 0xcb) { /* [SU]NORM_INT{8,16}X{1,2,4} */
        unsigned i = format - 0xc0;
        *channels = 1;
        return ((i / 3) % 2 == 0 ? 8u : 16u) << i % 3;
    }
    if (format >= 0x91 &&
        format <= 0x9e) { /* block compressed: BC1 and BC4 half a byte an element */
        bool half = format <= 0x92 || format == 0x97 || format == 0x98;
        *channels = 1;
        return half ? 4 : 8;
    }
    return 8; /* 8-bit integers, and planar formats near enough */
}

static uint64_t or_one(uint64_t n)
{
    return n == 0 ? 1 : n;
}

static uint64_t array_bytes(uint64_t width, uint64_t height, uint64_t depth, unsigned format,
                            unsigned channels)
{
    unsigned bits = format_bits(format, &channels);
    return or_one(width) * or_one(height) * or_one(depth) * channels * bits / 8;
}

void plim__took_array(struct plim__call *call, uint64_t array, uint64_t width, uint64_t height,
                      uint64_t depth, unsigned format, unsigned channels)
{
    plim__took(call, PLIM__ARRAY, array, array_bytes(width, height, depth, format, channels), 0);
}

void plim__took_mipmap(struct plim__call *call, uint64_t array, const struct plim__array3 *desc,
                       unsigned levels)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < levels && i < 32; i++) {
        bytes += array_bytes(desc->width >> i, desc->height >> i, desc->depth >> i, desc->format,
                             desc->channels);
    }
    plim__took(call, PLIM__ARRAY, array, bytes, 0);
}

void plim__took_channels(struct plim__call *call, uint64_t array, const struct plim__channels *desc,
                         struct plim__extent extent, unsigned levels)
{
    uint64_t bits = 0, bytes = 0;
    for (int i = 0; i < 4; i++) {
        bits += (unsigned)desc->bits[i];
    }
    for (unsigned i = 0; i < levels && i < 32; i++) {
        bytes += or_one(extent.width >> i) * or_one(extent.height >> i) *
                 or_one(extent.depth >> i) * bits / 8;
    }
    plim__took(call, PLIM__ARRAY, array, bytes, 0);
}
