/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A paged engine as vLLM 0.33.0 schedules it (reference: its v1/core/sched/scheduler.py and
 * v1/core/kv_cache_manager.py): running requests first, in order; each gets what is left of the step's
 * token budget, up to what it still has to compute; when the pool has no block for it, the last running
 * request is preempted: it gives back all blocks and starts anew at the head of the queue. In a step
 * without preemption waiting requests follow while their whole prompt fits in the free blocks.
 *
 * Steps in which every request computes one token run from captured graphs up to the largest captured
 * size: their activations live in the graphs' pool, only inputs, logits and sampling are allocated.
 * All other steps run the layers eagerly. A compiled model keeps its activations in fewer, larger
 * buffers; sizes of the same order.
 */

#include "base/num.h"
#include "serving/door_run.h"
#include "serving/kv.h"

#define NULL_BLOCK 1u /* block 0 is never used */

struct paged {
    struct plim__engine *e;
    PLIM_VEC(struct plim__ticket) running; /* oldest first */
    uint64_t blocks, free_blocks;
    struct plim__prefix prefix;
    uint64_t kv_tokens;         /* in the pool, of all requests */
    struct plim_edges captures; /* sizes of the graphs */
    uint32_t largest;           /* captured size, 0: none */
};

/* What the present step holds. */
struct step {
    uint64_t tokens;
    uint64_t rows;
    bool decode; /* each request computes one token */
    bool preempted;
};

/* ---- start -------------------------------------------------------------------------------------------- */

/* One run at the largest size, as the engine does to measure its peak: it leaves its segments cached. */
static void profile(struct paged *p)
{
    struct plim__engine *e = p->e;
    struct plim_paged_step s = {
        .tokens = e->s->step_tokens, .rows = e->s->max_seqs, .splits = 1, .plan_bytes = 36};
    plim_piece inputs[2], sampled = 0;
    plim_step_inputs(&e->feed, &s, inputs);
    plim_piece hidden = plim_forward_paged(&e->forward, &e->feed, &s);
    plim_step_sample(&e->forward, &e->feed, s.rows, &hidden, &sampled, inputs);
    plim_feed_put(&e->feed, &sampled);
}

/* The pool: what the engine's share of the device leaves after weights and the profile's peak. */
static enum plim_status take_pool(struct paged *p, struct plim_err *err)
{
    struct plim__engine *e = p->e;
    uint64_t block = plim_mul_sat(e->kv_token_bytes, e->s->block_tokens);
    uint64_t bytes = e->s->kv_bytes;
    uint64_t peak = plim_feed_books(&e->feed).peak_allocated;
    if (bytes == 0) {
        double share = e->s->utilization * (double)e->setup->capacity;
        bytes = plim_sub_sat((uint64_t)share, plim_add_sat(peak, e->setup->external));
    }
    if (block == 0) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "this model keeps no keys and values by token");
    }
    p->blocks = plim_sub_sat(bytes / block, NULL_BLOCK);
    p->free_blocks = p->blocks;
    e->r.kv_tokens = p->blocks * e->s->block_tokens;
    plim_feed_flush(&e->feed);
    plim_feed_get(&e->feed, (p->blocks + NULL_BLOCK) * block);
    return PLIM_OK;
}

/* vLLM's sizes: 1, 2, 4, 8, 16 ... 256 by 8, then by 16 to the smaller of twice the requests and 512. */
static struct plim_edges default_captures(uint32_t max_seqs)
{
    struct plim_edges e = {.n = 3, .edge = {1, 2, 4}};
    uint32_t most = max_seqs < 256 ? 2 * max_seqs : 512;
    for (uint32_t size = 8; size <= most && e.n < PLIM_EDGES_MAX; size += size < 256 ? 8 : 16) {
        e.edge[e.n++] = size;
    }
    return e;
}

/* Graphs, largest first, in one private pool; each keeps its output. */
static enum plim_status capture(struct paged *p, struct plim_err *err)
{
    struct plim__engine *e = p->e;
    struct plim_edges sizes =
        e->s->captures.n > 0 ? e->s->captures : default_captures(e->s->max_seqs);
    if (e->s->eager) {
        return PLIM_OK;
    }
    e->during = "graph capture";
    PLIM_TRY(plim_feed_capture(&e->feed, true, err));
    for (uint32_t i = sizes.n; i-- > 0;) {
        struct plim_paged_step s = {
            .tokens = sizes.edge[i], .rows = sizes.edge[i], .splits = 1, .plan_bytes = 20};
        (void)plim_forward_paged(&e->forward, &e->feed, &s);
    }
    PLIM_TRY(plim_feed_capture(&e->feed, false, err));
    p->captures = sizes;
    p->largest = sizes.edge[sizes.n - 1];
    return PLIM_OK;
}

static enum plim_status start(struct paged *p, struct plim_err *err)
{
    p->e->during = "start";
    profile(p);
    if (!p->e->feed.failed) {
        PLIM_TRY(take_pool(p, err));
        PLIM_TRY(plim__door_open(p->e, p->blocks, err));
        PLIM_TRY(capture(p, err));
    }
    p->e->r.started = !plim__engine_failed(p->e, 0) && p->blocks > 0;
    return PLIM_OK;
}

/* ---- blocks ------------------------------------------------------------------------------------------- */

static uint64_t blocks_for(const struct paged *p, uint64_t tokens)
{
    return (tokens + p->e->s->block_tokens - 1) / p->e->s->block_tokens;
}

/* Blocks of one hash: a hash that fills no whole block cannot be shared. */
static uint64_t hash_blocks(const struct paged *p, const struct plim__ticket *t)
{
    bool whole = t->hash_tokens > 0 && t->hash_tokens % p->e->s->block_tokens == 0;
    return whole ? t->hash_tokens / p->e->s->block_tokens : 0;
}

/* What is cached but not held lies in free blocks: no more of it than they hold. */
static void fit_cache(struct paged *p, const struct plim__ticket *t)
{
    uint64_t each = hash_blocks(p, t);
    if (each > 0) {
        plim__prefix_shrink(&p->prefix, p->free_blocks / each);
    }
}

/* Room for `tokens` of the request; false: the pool has not enough free blocks. */
static bool hold(struct paged *p, struct plim__ticket *t, uint64_t tokens)
{
    uint64_t own = plim_sub_sat(blocks_for(p, tokens), t->shared * hash_blocks(p, t));
    uint64_t need = plim_sub_sat(own, t->blocks);
    if (need > p->free_blocks) {
        return false;
    }
    p->free_blocks -= need;
    t->blocks += (uint32_t)need;
    fit_cache(p, t);
    return true;
}

/* Its blocks become free; the whole hashes that it computed stay known. */
static void release(struct paged *p, struct plim__ticket *t)
{
    uint64_t each = hash_blocks(p, t);
    p->free_blocks += t->blocks;
    if (each > 0 && !p->e->s->no_prefix_cache) {
        uint64_t held = p->prefix.held;
        uint32_t whole = (uint32_t)plim_min_u64(t->computed / t->hash_tokens, t->prefix.n);
        enum plim_status st =
            plim__prefix_keep(&p->prefix, &t->prefix, t->shared, whole, &p->e->feed.err);
        p->e->feed.status = p->e->feed.status != PLIM_OK ? p->e->feed.status : st;
        plim__prefix_drop(&p->prefix, &t->prefix, t->shared);
        p->free_blocks += (held - p->prefix.held) * each;
        t->shared = 0;
        fit_cache(p, t);
    }
    p->kv_tokens -= t->computed;
    t->blocks = 0;
    t->computed = 0;
    plim_feed_put(&p->e->feed, &t->media);
}

/* Tokens whose keys and values the request needs before its next output. */
static uint32_t target(const struct plim__ticket *t)
{
    return t->a.prompt + t->generated;
}

/* ---- one step ------------------------------------------------------------------------------------------ */

/* The last running request goes back to the queue. */
static void preempt(struct paged *p)
{
    struct plim__ticket *victim = &p->running.items[--p->running.n];
    release(p, victim);
    p->e->r.preemptions++;
    victim->preempted = true;
    plim__engine_return(p->e, victim);
}

static void compute(struct paged *p, struct plim__ticket *t, uint64_t tokens, struct step *s)
{
    t->computed += (uint32_t)tokens;
    p->kv_tokens += tokens;
    s->tokens += tokens;
    s->rows++;
    s->decode = s->decode && tokens == 1;
    p->e->r.prompt_tokens += tokens == 1 && t->generated > 0 ? 0 : tokens;
}

/* Running requests take their share of the budget; what cannot be held costs the last ones their place. */
static uint64_t schedule_running(struct paged *p, struct step *s)
{
    uint64_t budget = p->e->s->step_tokens;
    for (size_t i = 0; i < p->running.n && budget > 0; i++) {
        uint64_t tokens =
            plim_min_u64(target(&p->running.items[i]) - p->running.items[i].computed, budget);
        while (i < p->running.n &&
               !hold(p, &p->running.items[i], p->running.items[i].computed + tokens)) {
            preempt(p);
            s->preempted = true;
        }
        if (i < p->running.n) {
            compute(p, &p->running.items[i], tokens, s);
            budget -= tokens;
        }
    }
    return budget;
}

/* Pictures through the encoder; what it makes stays until the prompt is done. */
static void encode(struct paged *p, struct plim__ticket *t)
{
    struct plim__engine *e = p->e;
    const struct plim_vision *v = &e->s->geometry->vision;
    if (t->a.images == 0 || v->depth == 0 || t->encoded) {
        return;
    }
    uint64_t patch = v->patch > 0 ? v->patch : 14;
    uint64_t side = v->image_size > 0 ? v->image_size : 448;
    uint64_t width = v->image_size == 0 && t->a.width > 0 ? t->a.width : side;
    uint64_t height = v->image_size == 0 && t->a.height > 0 ? t->a.height : side;
    uint64_t patches = plim_max_u64((width / patch) * (height / patch), 1);
    uint64_t merged = v->merge > 1 ? (uint64_t)v->merge * v->merge : 1;
    e->during = "encoder";
    for (uint32_t i = 0; i < t->a.images; i++) { /* one picture at a time */
        plim_forward_vision(v, e->forward.element, &e->feed, 1, patches, width * height);
    }
    t->media = plim_feed_get(&e->feed, t->a.images * (patches / merged + 1) *
                                           e->s->geometry->hidden * e->forward.element);
    t->encoded = true;
}

/* Take what the cache knows of the prompt, all but its last token; false: it does not fit into the pool. */
static bool start_from_cache(struct paged *p, struct plim__ticket *t)
{
    uint64_t each = hash_blocks(p, t);
    uint32_t idle = 0, hits = 0;
    if (each > 0 && !p->e->s->no_prefix_cache) {
        hits = plim__prefix_hits(&p->prefix, &t->prefix, (target(t) - 1) / t->hash_tokens, &idle);
    }
    if (blocks_for(p, target(t)) - hits * each + idle * each > p->free_blocks) {
        return false;
    }
    plim__prefix_hold(&p->prefix, &t->prefix, hits);
    p->free_blocks -= idle * each;
    t->shared = hits;
    t->computed = hits * t->hash_tokens;
    p->kv_tokens += t->computed;
    p->e->r.cached_tokens += t->computed;
    return true;
}

static void admit(struct paged *p, struct step *s, uint64_t budget)
{
    struct plim__engine *e = p->e;
    while (budget > 0 && p->running.n < e->s->max_seqs && plim__engine_waiting(e) > 0) {
        struct plim__ticket *first = &e->waiting.items[e->head];
        if (!start_from_cache(p, first)) {
            return;
        }
        struct plim__ticket t = plim__engine_take(e);
        uint64_t tokens = plim_min_u64(target(&t) - t.computed, budget);
        plim__adapters_use(e, &t.a);
        encode(p, &t);
        (void)hold(p, &t, t.computed + tokens);
        compute(p, &t, tokens, s);
        budget -= tokens;
        enum plim_status st = plim_vec_push(&p->running, &e->feed.err, t);
        if (st != PLIM_OK) {
            e->feed.status = st;
            return;
        }
    }
}

/* The allocations of the step. The sampled tokens, 4 bytes for each request, really live until the next
 * step has its own; here they go with this one, so that steps leave nothing behind and can repeat. */
static void run_step(struct paged *p, const struct step *s)
{
    struct plim__engine *e = p->e;
    bool graph = s->decode && s->rows <= p->largest;
    if (graph) {
        uint32_t rows = (uint32_t)s->rows;
        plim__engine_size(e, PLIM_BUCKET_CAPTURE, rows);
        e->r.padding_tokens += plim_edges_up(&p->captures, rows) - rows;
    }
    struct plim_paged_step f = {
        .tokens = s->tokens, .rows = s->rows, .splits = 1, .plan_bytes = s->decode ? 20 : 36};
    uint64_t name = (f.tokens << 24 | f.rows) << 1 | graph;
    e->during = s->decode ? "decode" : "prefill";
    if (plim_feed_repeats(&e->feed, name)) {
        return;
    }
    uint64_t state = e->feed.state, gets = e->feed.gets;
    plim_piece inputs[2], hidden, sampled = 0;
    plim_step_inputs(&e->feed, &f, inputs);
    hidden = graph ? 0 : plim_forward_paged(&e->forward, &e->feed, &f);
    plim_step_sample(&e->forward, &e->feed, f.rows, &hidden, &sampled, inputs);
    plim_feed_put(&e->feed, &sampled);
    plim_feed_ran(&e->feed, name, state, gets);
}

/* Each request whose prompt and output so far are computed has one token more. */
static void advance(struct paged *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->running.n; i++) {
        struct plim__ticket t = p->running.items[i];
        if (t.computed == target(&t)) {
            t.generated++;
            p->e->r.output_tokens++;
            plim_feed_put(&p->e->feed, &t.media);
            plim__engine_first(p->e, &t);
            plim__door_grew(p->e, &t);
        }
        if (t.generated >= t.a.output) {
            plim__engine_done(p->e, &t);
            release(p, &t);
        } else {
            p->running.items[kept++] = t;
        }
    }
    p->running.n = kept;
}

/* After a failure: all requests of the step are lost. */
static void lose_all(struct paged *p)
{
    for (size_t i = 0; i < p->running.n; i++) {
        plim__door_lost(p->e, &p->running.items[i]);
        release(p, &p->running.items[i]);
    }
    p->running.n = 0;
    if (p->e->s->empty_cache) {
        plim_feed_flush(&p->e->feed);
    }
}

static double usage(const struct paged *p)
{
    return p->blocks > 0 ? 1 - (double)p->free_blocks / (double)p->blocks : 0;
}

static void one_step(struct paged *p)
{
    struct plim__engine *e = p->e;
    struct step s = {.decode = true};
    uint64_t budget = schedule_running(p, &s);
    if (!s.preempted) {
        admit(p, &s, budget);
    }
    if (s.tokens == 0) {
        /* The first in the queue can never be held: more than the whole pool. */
        struct plim__ticket t = plim__engine_take(e);
        plim__door_lost(e, &t);
        e->r.refused++;
        return;
    }
    e->running = (uint32_t)p->running.n;
    run_step(p, &s);
    if (plim__engine_failed(e, p->running.n)) {
        lose_all(p);
        plim__engine_step(e, e->s->step_ns, usage(p));
        return;
    }
    double kv = (double)p->kv_tokens * (double)e->kv_token_bytes;
    plim__engine_step(e, plim__engine_work(e, (double)s.tokens, kv), usage(p));
    advance(p);
}

enum plim_status plim__workload_paged(struct plim__engine *e, struct plim_err *err)
{
    struct paged p = {.e = e};
    plim__prefix_init(&p.prefix);
    enum plim_status st = start(&p, err);
    while (st == PLIM_OK && e->r.started && !plim__engine_over(e)) {
        plim__door_watch(e, usage(&p));
        plim__engine_arrive(e);
        plim__door_line(e);
        if (p.running.n == 0 && plim__engine_waiting(e) == 0) {
            if (!plim__engine_idle(e)) {
                break;
            }
            continue;
        }
        one_step(&p);
    }
    e->r.unfinished = p.running.n + plim__engine_waiting(e);
    plim__prefix_fini(&p.prefix);
    plim_vec_fini(&p.running);
    return st;
}
