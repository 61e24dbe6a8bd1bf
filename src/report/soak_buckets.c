/* SPDX-License-Identifier: Apache-2.0 */
/* Edges and split points that a soak chose, as text and JSON. */

#include "report/soak.h"

#include "base/bytes.h"

#include <inttypes.h>
#include <stdio.h>

/* "1,2,4,8"; for an engine's own sizes, or no edges at all, a word. */
static void put_edges(struct plim_buf *out, const struct plim_bucket_choice *c,
                      const struct plim_policy *p, const char *separator)
{
    if (p->edges.n == 0) {
        plim_buf_text(out, c->bucket == PLIM_BUCKET_CAPTURE ? "(the engine's own)" : "(none)");
    }
    for (uint32_t i = 0; i < p->edges.n; i++) {
        plim_buf_printf(out, "%s%u", i > 0 ? separator : "", p->edges.edge[i]);
    }
}

/* What to type to have these edges; false: this program knows no flag of an engine. */
static bool put_flags(struct plim_buf *out, const struct plim_bucket_choice *c,
                      const struct plim_policy *p)
{
    if (c->bucket != PLIM_BUCKET_CAPTURE || p->edges.n == 0) {
        return false;
    }
    plim_buf_text(out, "--cudagraph-capture-sizes ");
    put_edges(out, c, p, " ");
    return true;
}

static void text_policy(struct plim_buf *out, const struct plim_bucket_choice *c, uint32_t i)
{
    const struct plim_policy *p = &c->policies[i];
    char reserved[PLIM_BYTES_TEXT], wait[PLIM__SPAN_TEXT];
    plim_buf_printf(out, "%s %-14s %5u %8.2f%% %10s %8s %7" PRIu64 " %8.3f %5s  ",
                    i == c->proposed ? "*"
                    : i == 0         ? "="
                                     : " ",
                    p->name, p->edges.n, 100 * p->padding,
                    plim_bytes_format(reserved, p->result.peak.reserved),
                    plim__span_text(wait, (double)p->result.latency.first_p99), p->result.lost,
                    p->cost, p->front ? "yes" : "");
    if (p->edges.n <= 12) {
        put_edges(out, c, p, ",");
    } else {
        plim_buf_printf(out, "%u ... %u", p->edges.edge[0], p->edges.edge[p->edges.n - 1]);
    }
    plim_buf_char(out, '\n');
}

static void text_choice(struct plim_buf *out, const struct plim_bucket_choice *c,
                        const struct plim_text_style *style)
{
    char title[64];
    snprintf(title, sizeof title, "Edges of %s sizes", plim_bucket_text(c->bucket));
    plim_text_heading(out, title, style);
    plim_buf_printf(out, "  %-14s %5s %9s %10s %8s %7s %8s %5s  %s\n", "policy", "edges", "padding",
                    "reserved", "wait p99", "lost", "cost", "front", "sizes");
    for (uint32_t i = 0; i < c->n; i++) {
        text_policy(out, c, i);
    }
    plim_buf_printf(
        out,
        "  * proposed, = today; cost = %g * padding + %g * reserved / device + %g * wait / "
        "today's wait\n",
        c->weights.padding, c->weights.memory, c->weights.wait);
    if (c->proposed > 0) {
        plim_buf_text(out, "\n  ");
        if (!put_flags(out, c, &c->policies[c->proposed])) {
            plim_buf_printf(out, "--%s-edges ", plim_bucket_text(c->bucket));
            put_edges(out, c, &c->policies[c->proposed], ",");
        }
        plim_buf_char(out, '\n');
    }
}

static void text_routes(struct plim_buf *out, const struct plim_route_choice *c,
                        const struct plim_text_style *style)
{
    plim_text_heading(out, "Two replicas", style);
    plim_buf_printf(out, "  %-22s %8s %9s %7s %9s %9s %8s %8s\n", "prompts", "wait p99",
                    "preempted", "lost", "served 1", "served 2", "wait 1", "wait 2");
    for (uint32_t i = 0; i < c->n; i++) {
        const struct plim_route *r = &c->routes[i];
        char name[32], wait[PLIM__SPAN_TEXT], one[PLIM__SPAN_TEXT], two[PLIM__SPAN_TEXT];
        snprintf(name, sizeof name, r->split == 0 ? "every other" : "below %u | longer", r->split);
        plim_buf_printf(
            out, "%s %-22s %8s %9" PRIu64 " %7" PRIu64 " %9" PRIu64 " %9" PRIu64 " %8s %8s\n",
            i == c->proposed ? "*" : " ", name, plim__span_text(wait, (double)r->wait_ns),
            r->preemptions, r->lost, r->pool[0].served, r->pool[1].served,
            plim__span_text(one, (double)r->pool[0].latency.first_p99),
            plim__span_text(two, (double)r->pool[1].latency.first_p99));
    }
    plim_buf_text(out,
                  "  * proposed: least lost, then least preempted, then the shortest wait of the "
                  "worse pool\n");
}

void plim__text_buckets(struct plim_buf *out, const struct plim_soak_view *v,
                        const struct plim_text_style *style)
{
    if (v->buckets) {
        text_choice(out, v->buckets, style);
    }
    if (v->routes) {
        text_routes(out, v->routes, style);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------------- */

static void json_policy(struct plim_jsonw *w, const struct plim_bucket_choice *c,
                        const struct plim_policy *p)
{
    struct plim_buf flags = {0};
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "policy", p->name);
    plim_jsonw_key(w, "edges");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < p->edges.n; i++) {
        plim_jsonw_u64(w, p->edges.edge[i]);
    }
    plim_jsonw_end(w);
    plim_jsonw_kv_real(w, "padding_share", p->padding);
    plim_jsonw_kv_u64(w, "peak_reserved_bytes", p->result.peak.reserved);
    plim_jsonw_kv_u64(w, "peak_stranded_bytes", p->result.peak.stranded);
    plim_jsonw_kv_u64(w, "first_token_p99_ns", p->result.latency.first_p99);
    plim_jsonw_kv_u64(w, "lost", p->result.lost);
    plim_jsonw_kv_real(w, "cost", p->cost); /* null: it does not start */
    plim_jsonw_kv_bool(w, "front", p->front);
    if (put_flags(&flags, c, p)) {
        plim_jsonw_kv_str(w, "engine_flags", plim_buf_str(&flags));
    }
    plim_buf_fini(&flags);
    plim_jsonw_end(w);
}

static void json_choice(struct plim_jsonw *w, const struct plim_bucket_choice *c)
{
    plim_jsonw_key(w, "buckets");
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "of", plim_bucket_text(c->bucket));
    plim_jsonw_key(w, "weights");
    plim_jsonw_object(w);
    plim_jsonw_kv_real(w, "padding", c->weights.padding);
    plim_jsonw_kv_real(w, "memory", c->weights.memory);
    plim_jsonw_kv_real(w, "wait", c->weights.wait);
    plim_jsonw_end(w);
    plim_jsonw_kv_u64(w, "today", 0);
    plim_jsonw_kv_u64(w, "proposed", c->proposed);
    plim_jsonw_key(w, "policies");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < c->n; i++) {
        json_policy(w, c, &c->policies[i]);
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}

static void json_pool(struct plim_jsonw *w, const struct plim_soak_result *r)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "served", r->served);
    plim_jsonw_kv_u64(w, "lost", r->lost);
    plim_jsonw_kv_u64(w, "preemptions", r->preemptions);
    plim_jsonw_kv_u64(w, "first_token_p99_ns", r->latency.first_p99);
    plim_jsonw_kv_u64(w, "peak_reserved_bytes", r->peak.reserved);
    plim_jsonw_end(w);
}

static void json_routes(struct plim_jsonw *w, const struct plim_route_choice *c)
{
    plim_jsonw_key(w, "routing");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "proposed", c->proposed);
    plim_jsonw_key(w, "routes");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < c->n; i++) {
        const struct plim_route *r = &c->routes[i];
        plim_jsonw_object(w);
        if (r->split > 0) {
            plim_jsonw_kv_u64(w, "split_prompt_tokens", r->split);
        }
        plim_jsonw_kv_u64(w, "first_token_p99_ns", r->wait_ns);
        plim_jsonw_kv_u64(w, "lost", r->lost);
        plim_jsonw_kv_u64(w, "preemptions", r->preemptions);
        plim_jsonw_key(w, "pools");
        plim_jsonw_array(w);
        json_pool(w, &r->pool[0]);
        json_pool(w, &r->pool[1]);
        plim_jsonw_end(w);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}

void plim__json_buckets(struct plim_jsonw *w, const struct plim_soak_view *v)
{
    if (v->buckets) {
        json_choice(w, v->buckets);
    }
    if (v->routes) {
        json_routes(w, v->routes);
    }
}
