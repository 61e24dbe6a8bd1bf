/* SPDX-License-Identifier: Apache-2.0 */

/* A plan for a terminal: the verdict, the budget as the engine reckons, the card at rest and at the peak, what
 * to change, what is assumed, the command. See report/plan.h. */

#include "report/plan.h"

#include "base/bytes.h"
#include "base/num.h"
#include "serving/budget.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define GIB(bytes) ((double)(bytes) / (double)PLIM_GIB)

double plim_plan_predicted(const struct plim_plan *p, size_t field)
{
    const struct plim_vllm_start *s = &p->start;
    const struct plim_engine_log planned = {
        .free_bytes = (double)s->baseline_free,
        .weights_bytes = (double)s->weights,
        .consumed_bytes = (double)((int64_t)s->consumed + s->outside),
        /* the engine's line folds the graph estimate into the peak */
        .peak_bytes = (double)(s->transient + s->graph_estimate),
        .graph_estimate_bytes = (double)s->graph_estimate,
        .graph_bytes = (double)s->graph_actual,
        .available_kv_bytes = (double)s->available,
        .kv_tokens = (double)s->kv_tokens,
        .num_blocks = (double)s->num_blocks,
        .concurrency = s->concurrency,
    };
    const double values[] = {
#define PLIM__X(field, text, bytes) planned.field,
        PLIM_ENGINE_LOG_MAP(PLIM__X)
#undef PLIM__X
    };
    return field < PLIM_COUNT_OF(values) ? values[field] : PLIM_ENGINE_UNKNOWN;
}

/* "1,234,567" */
static void grouped(char out[32], uint64_t n)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, n), at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            out[at++] = ',';
        }
        out[at++] = digits[i];
    }
    out[at] = '\0';
}

static void head(struct plim_buf *out, const struct plim_plan *p,
                 const struct plim_text_style *style)
{
    const char *word = !p->fits ? "DOES NOT FIT" : p->tight ? "TIGHT" : "FITS";
    const char *color = !p->fits ? "31" : p->tight ? "33" : "32";
    if (style->color) {
        plim_buf_printf(out, "\033[1;%sm%s\033[0m", color, word);
    } else {
        plim_buf_printf(out, "%s", word);
    }
    const char *engine =
        p->request->engine == PLIM_ENGINE_VLLM ? "vLLM" : plim_engine_text(p->request->engine);
    plim_buf_printf(out, "  %s on %s, %s %s\n", p->request->model, p->request->card.name, engine,
                    p->request->engine_version);
    plim_text_wrap(out, "", p->why != NULL ? p->why : "", style);
    char margin[PLIM_BYTES_TEXT], error[PLIM_BYTES_TEXT];
    uint64_t size = p->margin_bytes < 0 ? (uint64_t)-p->margin_bytes : (uint64_t)p->margin_bytes;
    plim_bytes_format(margin, size);
    plim_bytes_format(error, p->error_bytes);
    if (p->fits) {
        plim_buf_printf(out, "Margin %s, known to within %s.\n", margin, error);
    } else if (p->margin_bytes < 0) {
        plim_buf_printf(out, "Missing %s; limited by %s.\n", margin,
                        plim_plan_limit_text(p->limit));
    }
}

static void term(struct plim_buf *out, const char *sign, double gib, const char *text)
{
    plim_buf_printf(out, "  %s %9.2f GiB  %s\n", sign, gib, text);
}

static void budget(struct plim_buf *out, const struct plim_plan *p,
                   const struct plim_text_style *style)
{
    const struct plim_vllm_start *s = &p->start;
    char tokens[32], blocks[32], line[96];
    if (p->request->engine != PLIM_ENGINE_VLLM || s->refusal == PLIM_VLLM_NO_FREE ||
        s->refusal == PLIM_VLLM_NO_LOAD || s->refusal == PLIM_VLLM_NO_PROFILE ||
        s->settings.kv_bytes != 0) {
        return;
    }
    plim_text_heading(out, "The engine's budget", style);
    (void)snprintf(line, sizeof line, "requested: %.2f GiB x %g", GIB(p->request->card.total),
                   s->settings.utilization);
    term(out, " ", GIB(s->requested), line);
    term(out, "-", GIB(s->consumed), "consumed: weights and what the profile run leaves");
    term(out, "-", GIB(s->transient), "peak of the profile run");
    if (s->graph_estimate != 0) {
        term(out, "-", GIB(s->graph_estimate), "set aside for CUDA graphs");
    }
    if (s->outside != 0) {
        term(out, s->outside > 0 ? "-" : "+", fabs((double)s->outside) / (double)PLIM_GIB,
             "outside the allocator, measured on this host");
    }
    term(out, "=", (double)s->available / (double)PLIM_GIB, "for the KV cache");
    if (s->num_blocks == 0) {
        return;
    }
    grouped(tokens, s->kv_tokens);
    grouped(blocks, s->num_blocks);
    plim_buf_printf(out, "  %s blocks of %u tokens, %.2f MiB each", blocks, s->settings.block_size,
                    (double)s->block_bytes / (double)PLIM_MIB);
    if (s->kv_tokens > 0) {
        plim_buf_printf(out, ": %s tokens", tokens);
    }
    plim_buf_printf(out, "\n");
}

static void amount(struct plim_buf *out, const struct plim_plan_line *l)
{
    char size[PLIM_BYTES_TEXT];
    plim_bytes_format(size, l->bytes);
    plim_buf_printf(out, "  %-44.44s %11s  %s", l->text, size, plim_plan_how_text(l->how));
    if (l->error_bytes != 0) {
        plim_bytes_format(size, l->error_bytes);
        plim_buf_printf(out, " to within %s", size);
    }
    plim_buf_text(out, "\n");
}

static void sum(struct plim_buf *out, const char *text, uint64_t bytes, uint64_t total)
{
    char size[PLIM_BYTES_TEXT];
    plim_bytes_format(size, bytes);
    plim_buf_printf(out, "  %-44.44s %11s  %.1f %% of the card\n", text, size,
                    total > 0 ? 100.0 * (double)bytes / (double)total : 0);
}

static void ledger(struct plim_buf *out, const struct plim_plan *p,
                   const struct plim_text_style *style)
{
    plim_text_heading(out, "The card", style);
    for (uint32_t i = 0; i < p->n_lines; i++) {
        if (p->lines[i].place == PLIM_PLAN_REST) {
            amount(out, &p->lines[i]);
        }
    }
    sum(out, "at rest", p->rest_bytes, p->request->card.total);
    for (uint32_t i = 0; i < p->n_lines; i++) {
        if (p->lines[i].place == PLIM_PLAN_PEAK) {
            amount(out, &p->lines[i]);
        }
    }
    sum(out, "at the peak", p->peak_bytes, p->request->card.total);
}

static void changes(struct plim_buf *out, const struct plim_plan *p,
                    const struct plim_text_style *style)
{
    if (p->n_changes == 0) {
        if (!p->fits) {
            plim_text_heading(out, "What would help", style);
            plim_buf_text(out, "  Nothing among the flags: a larger card, a smaller or quantized "
                               "model.\n");
        }
        return;
    }
    plim_text_heading(out, "What would help, cheapest first", style);
    for (uint32_t i = 0; i < p->n_changes; i++) {
        const struct plim_plan_change *c = &p->changes[i];
        plim_buf_printf(out, "  %s\n", c->flags);
        plim_buf_printf(out, "      %.2f GiB of cache, %.1f requests of %" PRIu64 " tokens; %s\n",
                        (double)c->available_kv_bytes / (double)PLIM_GIB, c->concurrency,
                        c->max_model_len, c->cost);
    }
}

static void answers(struct plim_buf *out, const struct plim_plan *p,
                    const struct plim_text_style *style)
{
    const struct {
        const struct plim_plan_answer *a;
        const char *text, *unit;
    } all[] = {
        {&p->largest_context, "longest context", "tokens"},
        {&p->largest_batch, "most requests at once", "requests"},
        {&p->smallest_gpu, "smallest card", ""},
        {&p->replicas, "replicas for the traffic", "replicas"},
    };
    bool any = false;
    for (size_t i = 0; i < PLIM_COUNT_OF(all); i++) {
        any = any || all[i].a->asked;
    }
    if (!any && p->possible_concurrency == 0) {
        return;
    }
    plim_text_heading(out, "Asked", style);
    if (p->possible_concurrency > 0) {
        plim_buf_printf(out, "  %-28s %.1f wanted, %.1f possible\n", "requests of the traffic",
                        p->wanted_concurrency, p->possible_concurrency);
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(all); i++) {
        const struct plim_plan_answer *a = all[i].a;
        if (!a->asked) {
            continue;
        }
        if (!a->known) {
            plim_buf_printf(out, "  %-28s none\n", all[i].text);
        } else if (a->text != NULL) {
            plim_buf_printf(out, "  %-28s %s\n", all[i].text, a->text);
        } else {
            plim_buf_printf(out, "  %-28s %" PRIu64 " %s\n", all[i].text, a->value, all[i].unit);
        }
    }
}

static void rules(struct plim_buf *out, const struct plim_plan *p,
                  const struct plim_text_style *style)
{
    if (p->n_rules == 0) {
        return;
    }
    plim_text_heading(out, "Unsafe or wasteful together", style);
    for (uint32_t i = 0; i < p->n_rules; i++) {
        plim_text_wrap(out, "  - ", p->rules[i]->text, style);
        plim_text_wrap(out, "    instead: ", p->rules[i]->instead, style);
    }
}

static void value(struct plim_buf *out, bool bytes, double n)
{
    if (n < 0) {
        plim_buf_printf(out, " %14s", "-");
    } else if (bytes) {
        plim_buf_printf(out, " %10.2f GiB", n / (double)PLIM_GIB);
    } else {
        plim_buf_printf(out, " %14.2f", n);
    }
}

static void compared(struct plim_buf *out, const struct plim_plan_compared *c,
                     const struct plim_text_style *style)
{
    static const struct {
        const char *text;
        bool bytes;
    } fields[] = {
#define PLIM__X(field, text, bytes) {text, bytes},
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
    plim_text_heading(out, "Planned against the engine's log", style);
    plim_buf_printf(out, "  %-24s %14s %14s\n", "", "planned", "actual");
    for (size_t i = 0; i < PLIM_COUNT_OF(fields); i++) {
        if (actual[i] >= 0) {
            plim_buf_printf(out, "  %-24s", fields[i].text);
            value(out, fields[i].bytes, plim_plan_predicted(&c->planned, i));
            value(out, fields[i].bytes, actual[i]);
            plim_buf_text(out, "\n");
        }
    }
    plim_buf_printf(out, "  Outside the allocator on this host: %+.2f GiB%s.\n",
                    (double)c->learned_bytes / (double)PLIM_GIB,
                    c->stored ? ", kept for later plans (--forget undoes it)" : "");
}

void plim_text_plan(struct plim_buf *out, const struct plim_plan *p,
                    const struct plim_plan_compared *c, const struct plim_text_style *style)
{
    head(out, p, style);
    budget(out, p, style);
    ledger(out, p, style);
    compared(out, c, style);
    answers(out, p, style);
    changes(out, p, style);
    rules(out, p, style);
    if (p->breaks_first != NULL) {
        plim_text_heading(out, "What breaks it first", style);
        plim_text_wrap(out, "  ", p->breaks_first, style);
    }
    if (p->n_assumptions > 0) {
        plim_text_heading(out, "Assumed", style);
        for (uint32_t i = 0; i < p->n_assumptions; i++) {
            plim_text_wrap(out, "  - ", p->assumptions[i], style);
        }
    }
    if (p->command != NULL) {
        plim_text_heading(out, p->fits ? "Run" : "Run, with the first change", style);
        plim_buf_printf(out, "  %s\n", p->command);
    }
}

void plim_text_cards(struct plim_buf *out)
{
    struct plim_card card;
    for (size_t i = 0; plim_card_at(i, &card); i++) {
        plim_buf_printf(out, "%-20s %8.2f GiB  %2" PRIu32 ".%" PRIu32 "  %3" PRIu32 " SMs  %s\n",
                        card.key, GIB(card.total), card.cc / 10, card.cc % 10, card.sms, card.name);
    }
}
