/* SPDX-License-Identifier: Apache-2.0 */

/* A plan as JSON. See report/plan.h. */

#include "report/plan.h"

#include "serving/budget.h"

static void text_list(struct plim_jsonw *w, const char *key, const char *const *items, size_t n)
{
    plim_jsonw_key(w, key);
    plim_jsonw_array(w);
    for (size_t i = 0; i < n; i++) {
        plim_jsonw_text(w, items[i]);
    }
    plim_jsonw_end(w);
}

static void line(struct plim_jsonw *w, const struct plim_plan_line *l)
{
    static const char *const places[] = {"budget", "rest", "peak"};
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "name", l->name);
    plim_jsonw_kv_text(w, "text", l->text);
    plim_jsonw_kv_u64(w, "bytes", l->bytes);
    plim_jsonw_kv_text(w, "how", plim_plan_how_text(l->how));
    plim_jsonw_kv_u64(w, "error_bytes", l->error_bytes);
    plim_jsonw_kv_text(w, "source", l->source);
    plim_jsonw_kv_text(w, "when", places[l->place]);
    plim_jsonw_end(w);
}

static void ledger(struct plim_jsonw *w, const struct plim_plan *p)
{
    uint64_t total = p->request->card.total;
    plim_jsonw_key(w, "ledger");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "total_bytes", total);
    plim_jsonw_kv_u64(w, "requested_bytes", p->start.requested);
    plim_jsonw_kv_u64(w, "free_at_start_bytes", p->start.baseline_free);
    plim_jsonw_kv_u64(w, "at_rest_bytes", p->rest_bytes);
    plim_jsonw_kv_u64(w, "at_peak_bytes", p->peak_bytes);
    plim_jsonw_kv_i64(w, "free_at_rest_bytes", (int64_t)total - (int64_t)p->rest_bytes);
    plim_jsonw_kv_i64(w, "free_at_peak_bytes", (int64_t)total - (int64_t)p->peak_bytes);
    for (uint32_t i = 0; i < p->n_lines; i++) {
        if (p->lines[i].place != PLIM_PLAN_BUDGET) {
            plim_jsonw_key(w, p->lines[i].name);
            plim_jsonw_u64(w, p->lines[i].bytes);
        }
    }
    plim_jsonw_end(w);
}

static void groups(struct plim_jsonw *w, const struct plim_vllm_start *s)
{
    static const char *const kinds[] = {"full",  "sliding", "chunked", "mla",
                                        "index", "state",   "cross"};
    plim_jsonw_key(w, "groups");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < s->n_groups; i++) {
        const struct plim_vllm_group *g = &s->groups[i];
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "kind", kinds[g->kind]);
        plim_jsonw_kv_u64(w, "layers", g->layers);
        plim_jsonw_kv_u64(w, "block_size", g->block_size);
        plim_jsonw_kv_u64(w, "page_bytes", g->page_bytes);
        plim_jsonw_kv_u64(w, "padding_bytes", g->padded_bytes);
        plim_jsonw_kv_u64(w, "request_blocks", g->request_blocks);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

static void engine(struct plim_jsonw *w, const struct plim_plan *p)
{
    const struct plim_vllm_start *s = &p->start;
    plim_jsonw_key(w, "engine");
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "name", plim_engine_text(p->request->engine));
    plim_jsonw_kv_text(w, "version", p->request->engine_version);
    plim_jsonw_kv_bool(w, "starts", s->refusal == PLIM_VLLM_STARTS);
    if (p->request->engine == PLIM_ENGINE_VLLM) {
        plim_jsonw_kv_text(w, "runner", s->settings.v2 ? "V2" : "V1");
    }
    if (s->refusal != PLIM_VLLM_NO_FREE && s->refusal != PLIM_VLLM_NO_LOAD &&
        s->refusal != PLIM_VLLM_NO_PROFILE) {
        plim_jsonw_kv_i64(w, "available_kv_bytes", s->available);
        plim_jsonw_kv_u64(w, "num_blocks", s->num_blocks);
        plim_jsonw_kv_u64(w, "kv_tokens", s->kv_tokens);
        plim_jsonw_kv_real(w, "max_concurrency", s->concurrency);
        plim_jsonw_kv_u64(w, "longest_fitting_len", s->fitting_len);
    }
    plim_jsonw_kv_u64(w, "block_size", s->settings.block_size);
    plim_jsonw_kv_u64(w, "max_model_len",
                      s->max_model_len != 0 ? s->max_model_len : s->settings.max_model_len);
    plim_jsonw_kv_u64(w, "block_bytes", s->block_bytes);
    plim_jsonw_kv_u64(w, "request_blocks", s->request_blocks);
    plim_jsonw_kv_u64(w, "max_num_batched_tokens", s->settings.batched_tokens);
    plim_jsonw_kv_u64(w, "max_num_seqs", s->settings.seqs);
    plim_jsonw_kv_u64(w, "max_in_flight_tokens", s->settings.in_flight_tokens);
    plim_jsonw_kv_u64(w, "weights_bytes", s->weights);
    plim_jsonw_kv_u64(w, "consumed_bytes", s->consumed);
    plim_jsonw_kv_u64(w, "peak_activation_bytes", s->transient);
    plim_jsonw_kv_u64(w, "cuda_graph_estimate_bytes", s->graph_estimate);
    groups(w, s);
    plim_jsonw_end(w);
}

static void verdict(struct plim_jsonw *w, const struct plim_plan *p)
{
    plim_jsonw_key(w, "verdict");
    plim_jsonw_object(w);
    plim_jsonw_kv_bool(w, "fits", p->fits);
    plim_jsonw_kv_bool(w, "tight", p->tight);
    plim_jsonw_kv_text(w, "limiting", plim_plan_limit_text(p->limit));
    plim_jsonw_kv_i64(w, "margin_bytes", p->margin_bytes);
    plim_jsonw_kv_u64(w, "error_bytes", p->error_bytes);
    plim_jsonw_kv_text(w, "summary", p->why);
    plim_jsonw_end(w);
}

static void changes(struct plim_jsonw *w, const struct plim_plan *p)
{
    plim_jsonw_key(w, "changes");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < p->n_changes; i++) {
        const struct plim_plan_change *c = &p->changes[i];
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "flags", c->flags);
        plim_jsonw_kv_text(w, "cost", c->cost);
        plim_jsonw_kv_i64(w, "available_kv_bytes", c->available_kv_bytes);
        plim_jsonw_kv_real(w, "max_concurrency", c->concurrency);
        plim_jsonw_kv_u64(w, "max_model_len", c->max_model_len);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

static void rules(struct plim_jsonw *w, const struct plim_plan *p)
{
    plim_jsonw_key(w, "rules");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < p->n_rules; i++) {
        const struct plim_plan_rule *r = p->rules[i];
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "id", r->id);
        plim_jsonw_kv_bool(w, "forbids", r->forbids);
        plim_jsonw_kv_text(w, "text", r->text);
        plim_jsonw_kv_text(w, "instead", r->instead);
        plim_jsonw_kv_text(w, "source", r->source);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

static void answer(struct plim_jsonw *w, const char *key, const struct plim_plan_answer *a)
{
    if (!a->asked) {
        return;
    }
    plim_jsonw_key(w, key);
    if (!a->known) {
        plim_jsonw_null(w);
    } else if (a->text != NULL) {
        plim_jsonw_text(w, a->text);
    } else {
        plim_jsonw_u64(w, a->value);
    }
}

static void answers(struct plim_jsonw *w, const struct plim_plan *p)
{
    plim_jsonw_key(w, "answers");
    plim_jsonw_object(w);
    answer(w, "largest_context", &p->largest_context);
    answer(w, "largest_batch", &p->largest_batch);
    answer(w, "smallest_gpu", &p->smallest_gpu);
    answer(w, "replicas", &p->replicas);
    plim_jsonw_end(w);
}

static void traffic(struct plim_jsonw *w, const struct plim_plan *p)
{
    const struct plim_plan_traffic *t = &p->request->traffic;
    if (t->prompt + t->output == 0) {
        return;
    }
    plim_jsonw_key(w, "traffic");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "requests", t->requests);
    plim_jsonw_kv_u64(w, "prompt_tokens", t->prompt);
    plim_jsonw_kv_u64(w, "output_tokens", t->output);
    plim_jsonw_kv_u64(w, "prompt_tokens_p95", t->prompt_p95);
    plim_jsonw_kv_u64(w, "output_tokens_p95", t->output_p95);
    plim_jsonw_kv_real(w, "requests_per_second", t->rate);
    plim_jsonw_kv_real(w, "wanted_concurrency", p->wanted_concurrency);
    plim_jsonw_kv_real(w, "possible_concurrency", p->possible_concurrency);
    plim_jsonw_end(w);
}

static void calibration(struct plim_jsonw *w, const struct plim_plan_compared *c)
{
    static const char *const fields[] = {
#define PLIM__X(field, text, bytes) #field,
        PLIM_ENGINE_LOG_MAP(PLIM__X)
#undef PLIM__X
    };
    if (c->path == NULL) {
        return;
    }
    const double actual[] = {
#define PLIM__X(field, text, bytes) c->log.field,
        PLIM_ENGINE_LOG_MAP(PLIM__X)
#undef PLIM__X
    };
    plim_jsonw_key(w, "calibration");
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "log", c->path);
    plim_jsonw_kv_i64(w, "outside_bytes", c->learned_bytes);
    plim_jsonw_kv_bool(w, "stored", c->stored);
    plim_jsonw_key(w, "compared");
    plim_jsonw_array(w);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        double planned = plim_plan_predicted(&c->planned, i);
        if (actual[i] >= 0) {
            plim_jsonw_object(w);
            plim_jsonw_kv_text(w, "name", fields[i]);
            plim_jsonw_kv_real(w, "actual", actual[i]);
            if (planned >= 0) {
                plim_jsonw_kv_real(w, "predicted", planned);
            }
            plim_jsonw_end(w);
        }
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}

static void card(struct plim_jsonw *w, const struct plim_card *c)
{
    plim_jsonw_key(w, "card");
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "key", c->key);
    plim_jsonw_kv_text(w, "name", c->name);
    plim_jsonw_kv_u64(w, "total_bytes", c->total);
    plim_jsonw_kv_real(w, "compute_capability", (double)c->cc / 10);
    plim_jsonw_kv_u64(w, "multiprocessors", c->sms);
    plim_jsonw_kv_u64(w, "context_bytes", c->context);
    plim_jsonw_kv_u64(w, "external_bytes", c->external);
    plim_jsonw_kv_text(w, "source", c->source);
    plim_jsonw_end(w);
}

void plim_json_plan(struct plim_jsonw *w, const struct plim_plan *p,
                    const struct plim_plan_compared *compared)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "schema", "plimsoll.plan/1");
    plim_jsonw_kv_text(w, "model", p->request->model);
    plim_jsonw_kv_text(w, "architecture", p->request->geometry->architecture);
    card(w, &p->request->card);
    ledger(w, p);
    engine(w, p);
    verdict(w, p);
    plim_jsonw_key(w, "lines");
    plim_jsonw_array(w);
    for (uint32_t i = 0; i < p->n_lines; i++) {
        line(w, &p->lines[i]);
    }
    plim_jsonw_end(w);
    changes(w, p);
    rules(w, p);
    traffic(w, p);
    answers(w, p);
    text_list(w, "assumptions", p->assumptions, p->n_assumptions);
    text_list(w, "unknown_flags", p->flags.unknown, p->flags.n_unknown);
    if (p->breaks_first != NULL) {
        plim_jsonw_kv_text(w, "breaks_first", p->breaks_first);
    }
    if (p->command != NULL) {
        plim_jsonw_kv_text(w, "command", p->command);
    }
    calibration(w, compared);
    plim_jsonw_end(w);
}
