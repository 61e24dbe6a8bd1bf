/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LoRA adapters on demand: each linear layer of the decoder has two thin matrices, [rank][in] and
 * [out][rank]. A request whose adapter is not there loads it, on a stream of its own with the compute
 * stream recorded; when all places are taken the least recently used adapter leaves. (Engines that set
 * static buffers aside, as vLLM does, have these bytes in their weights instead.)
 */

#include "base/num.h"
#include "serving/engine.h"
#include "serving/weights.h"

struct place {
    uint32_t adapter;   /* 0: empty */
    uint64_t used;      /* when last, by count */
    plim_piece *pieces; /* [n_sizes] */
};

struct plim__adapters {
    PLIM_VEC(uint64_t) sizes; /* bytes of each matrix */
    struct place *places;     /* [adapters_held] */
    uint64_t uses;
    uint16_t stream;
};

static enum plim_status list_sizes(struct plim__engine *e, struct plim__adapters *a,
                                   struct plim_err *err)
{
    struct plim_arena arena;
    struct plim_weight_list list;
    plim_arena_init(&arena, 0);
    enum plim_status st = plim_weights_list(&arena, e->s->geometry, &list, err);
    for (size_t i = 0; st == PLIM_OK && i < list.n; i++) {
        const struct plim_weight *w = &list.items[i];
        bool adapted = w->linear && w->layer != PLIM_NO_LAYER && w->copies <= 1 &&
                       (w->part == PLIM_PART_ATTENTION || w->part == PLIM_PART_MLP);
        uint64_t rank = (uint64_t)e->s->adapter_rank * e->forward.element;
        if (adapted) {
            st = plim_vec_reserve(&a->sizes, 2, err);
        }
        if (adapted && st == PLIM_OK) {
            a->sizes.items[a->sizes.n++] = w->cols * rank;
            a->sizes.items[a->sizes.n++] = w->rows * rank;
        }
    }
    plim_arena_fini(&arena);
    return st;
}

enum plim_status plim__adapters_new(struct plim__engine *e, struct plim_err *err)
{
    struct plim__adapters *a = calloc(1, sizeof *a);
    if (!a) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for adapters");
    }
    e->adapters = a;
    PLIM_TRY(list_sizes(e, a, err));
    PLIM_TRY(plim_feed_stream(&e->feed, &a->stream, err));
    a->places = calloc(e->s->adapters_held, sizeof *a->places);
    for (uint32_t i = 0; a->places && i < e->s->adapters_held; i++) {
        a->places[i].pieces = calloc(a->sizes.n + 1, sizeof(plim_piece));
        if (!a->places[i].pieces) {
            return plim__fail(err, PLIM_E_NOMEM, "no memory for adapters");
        }
    }
    return a->places ? PLIM_OK : plim__fail(err, PLIM_E_NOMEM, "no memory for adapters");
}

void plim__adapters_delete(struct plim__engine *e)
{
    struct plim__adapters *a = e->adapters;
    if (a) {
        for (uint32_t i = 0; a->places && i < e->s->adapters_held; i++) {
            free(a->places[i].pieces);
        }
        free(a->places);
        plim_vec_fini(&a->sizes);
        free(a);
    }
}

static void unload(struct plim__engine *e, struct place *place)
{
    for (size_t i = 0; i < e->adapters->sizes.n; i++) {
        plim_feed_put(&e->feed, &place->pieces[i]);
    }
    plim_feed_settle(&e->feed);
    place->adapter = 0;
}

static void load(struct plim__engine *e, struct place *place, uint32_t adapter)
{
    struct plim__adapters *a = e->adapters;
    e->during = "adapter load";
    e->feed.stream = a->stream;
    for (size_t i = 0; i < a->sizes.n; i++) {
        place->pieces[i] = plim_feed_get(&e->feed, a->sizes.items[i]);
        plim_feed_used_on(&e->feed, place->pieces[i], 0);
    }
    e->feed.stream = 0;
    e->r.adapter_loads++;
    place->adapter = adapter;
    if (e->feed.failed) {
        unload(e, place);
    }
}

/* Traffic without adapters of its own: sessions, or arrival times, are spread over those there are. */
static uint32_t adapter_of(const struct plim__engine *e, const struct plim_arrival *a)
{
    uint64_t key = a->adapter > 0             ? a->adapter
                   : a->session != PLIM_NO_ID ? plim_hash_u64(a->session)
                                              : plim_hash_u64(a->at_ns);
    return (uint32_t)(key % e->s->adapters) + 1;
}

void plim__adapters_use(struct plim__engine *e, const struct plim_arrival *arrival)
{
    struct plim__adapters *a = e->adapters;
    if (!a || e->feed.failed) {
        return;
    }
    uint32_t adapter = adapter_of(e, arrival);
    struct place *oldest = &a->places[0];
    for (uint32_t i = 0; i < e->s->adapters_held; i++) {
        struct place *p = &a->places[i];
        if (p->adapter == adapter) {
            p->used = ++a->uses;
            return;
        }
        oldest = p->used < oldest->used ? p : oldest;
    }
    unload(e, oldest);
    oldest->used = ++a->uses;
    load(e, oldest, adapter);
}
