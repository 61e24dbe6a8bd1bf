/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server around transformers' generate(): requests wait until a batch is full or its first one has
 * waited long enough; prompts are padded to the longest, or to the next edge, rows to the next edge; the
 * batch runs one prefill and then a step for each token of its longest answer, keys and values growing by
 * concatenation; then everything is dropped. Rows that are done keep computing, as generate() does.
 */

#include "base/num.h"
#include "serving/engine.h"

struct batch {
    struct plim__ticket *rows; /* owned, [max_seqs] */
    uint32_t n;
    uint32_t padded_rows;
    uint32_t length;  /* of the padded prompts */
    uint32_t longest; /* output */
    uint64_t real;    /* prompt tokens without padding */
};

/* Take what waits, up to a full batch. */
static void fill(struct plim__engine *e, struct batch *b)
{
    *b = (struct batch){.rows = b->rows};
    while (b->n < e->s->max_seqs && plim__engine_waiting(e) > 0) {
        struct plim__ticket t = plim__engine_take(e);
        b->rows[b->n++] = t;
        b->real += t.a.prompt;
        b->length = t.a.prompt > b->length ? t.a.prompt : b->length;
        b->longest = t.a.output > b->longest ? t.a.output : b->longest;
        plim__adapters_use(e, &t.a);
    }
    plim__engine_size(e, PLIM_BUCKET_PROMPT, b->length);
    plim__engine_size(e, PLIM_BUCKET_BATCH, b->n);
    b->length = plim_edges_up(&e->s->prompts, b->length);
    b->padded_rows = plim_edges_up(&e->s->batches, b->n);
    e->running = b->n;
}

/* One forward pass over `length` tokens of each row, and the choice of the next token. */
static void pass(struct plim__engine *e, struct plim_dynamic_cache *cache, const struct batch *b,
                 uint64_t length, bool masked, plim_piece *logits, plim_piece *ids)
{
    struct plim_feed *t = &e->feed;
    plim_piece next = plim_forward_dynamic(&e->forward, cache, t, b->padded_rows, length, masked);
    plim_feed_put(t, logits);
    *logits = next;
    plim_piece chosen = plim_feed_get(t, (uint64_t)b->padded_rows * 8);
    plim_feed_put(t, ids);
    *ids = chosen;
    double kv = (double)cache->length * b->padded_rows * (double)e->kv_token_bytes;
    plim__engine_step(e, plim__engine_work(e, (double)b->padded_rows * (double)length, kv), 0);
}

/* After the n-th token: first tokens, and rows that are complete. */
static void advance(struct plim__engine *e, struct batch *b, uint32_t n)
{
    for (uint32_t i = 0; i < b->n; i++) {
        plim__engine_first(e, &b->rows[i]);
        if (b->rows[i].a.output == n) {
            plim__engine_done(e, &b->rows[i]);
        }
    }
    e->r.output_tokens += b->n;
}

/* Rows that were not complete when the batch failed. */
static uint64_t incomplete(const struct batch *b, uint32_t n)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        rows += b->rows[i].a.output > n;
    }
    return rows;
}

static void run_batch(struct plim__engine *e, struct plim_dynamic_cache *cache, struct batch *b)
{
    bool masked = (uint64_t)b->length * b->padded_rows != b->real;
    plim_piece logits = 0;
    plim_piece ids = plim_feed_get(&e->feed, (uint64_t)b->padded_rows * b->length * 8);
    uint32_t n = 0;
    e->during = "prefill";
    pass(e, cache, b, b->length, masked, &logits, &ids);
    e->r.prompt_tokens += b->real;
    e->r.padding_tokens += (uint64_t)b->length * b->padded_rows - b->real;
    while (!e->feed.failed && !plim__engine_over(e)) {
        advance(e, b, ++n);
        if (n == b->longest) {
            break;
        }
        e->r.padding_tokens += b->padded_rows - incomplete(b, n);
        e->during = "decode";
        pass(e, cache, b, 1, masked, &logits, &ids);
    }
    (void)plim__engine_failed(e, incomplete(b, n));
    plim_dynamic_cache_drop(cache, &e->feed);
    plim_feed_put(&e->feed, &logits);
    plim_feed_put(&e->feed, &ids);
    if (e->s->empty_cache) {
        plim_feed_flush(&e->feed);
    }
}

/* Whether the batch may start: full, its first request has waited long enough, or nobody else comes. */
static bool ready(const struct plim__engine *e)
{
    uint64_t waited = plim_sub_sat(e->now_ns, e->waiting.items[e->head].a.at_ns);
    return plim__engine_waiting(e) >= e->s->max_seqs || waited >= e->s->batch_wait_ns ||
           !e->have_next;
}

/* Until the next arrival, or until the open batch has waited long enough. */
static void wait_for_more(struct plim__engine *e)
{
    uint64_t until = e->waiting.items[e->head].a.at_ns + e->s->batch_wait_ns;
    if (e->next.at_ns < until) {
        (void)plim__engine_idle(e);
    } else {
        plim__engine_wait(e, until);
    }
}

static void serve(struct plim__engine *e, struct plim_dynamic_cache *cache, struct batch *b)
{
    e->r.started = !plim__engine_failed(e, 0);
    while (plim__engine_until_work(e)) {
        if (!ready(e)) {
            wait_for_more(e);
        } else {
            fill(e, b);
            run_batch(e, cache, b);
        }
    }
    e->r.unfinished = plim__engine_waiting(e);
}

enum plim_status plim__workload_dynamic(struct plim__engine *e, struct plim_err *err)
{
    struct plim_dynamic_cache cache;
    struct batch b = {.rows = calloc(e->s->max_seqs, sizeof *b.rows)};
    if (!b.rows) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a batch of %u", e->s->max_seqs);
    }
    enum plim_status st = plim_dynamic_cache_init(&cache, e->s->geometry->n_layers, err);
    if (st == PLIM_OK) {
        serve(e, &cache, &b);
        plim_dynamic_cache_fini(&cache);
    }
    free(b.rows);
    return st;
}
