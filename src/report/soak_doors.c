/* SPDX-License-Identifier: Apache-2.0 */
/* Front doors of a soak, as text and JSON. */

#include "report/soak.h"

#include "base/num.h"

#include <inttypes.h>
#include <stdio.h>

/* Requests of those asked for, as a share. */
static double part(uint64_t n, const struct plim_door_result *d)
{
    return d->asked > 0 ? (double)n / (double)d->asked : 0;
}

static double preemptions_each(const struct plim_soak_result *r)
{
    return r->door.let_in > 0 ? (double)r->preemptions / (double)r->door.let_in : 0;
}

static void text_row(struct plim_buf *out, const struct plim_door_row *row, double best)
{
    const struct plim_soak_result *r = &row->result;
    const struct plim_door_result *d = &r->door;
    char limit[24] = "", p50[PLIM__SPAN_TEXT], p99[PLIM__SPAN_TEXT];
    double good = plim_door_goodput(r);
    if (row->searched) {
        snprintf(limit, sizeof limit, "%" PRIu64, row->door.limit);
    }
    plim_buf_printf(
        out,
        "  %-21s %7s %8.3g %5.0f%% %8.0f %6.1f%% %6.1f%% %6.1f%% %8.2f%% %5" PRIu64 " %8s %8s\n",
        plim_door_name(&row->door), limit, good, best > 0 ? 100 * good / best : 0,
        d->span_s > 0 ? (double)d->good_tokens / d->span_s : 0, 100 * part(d->turned_away, d),
        100 * part(d->late_first, d), 100 * part(d->slow, d), 100 * preemptions_each(r),
        r->num_ooms, plim__span_text(p50, (double)r->latency.first_p50),
        plim__span_text(p99, (double)r->latency.first_p99));
}

void plim__text_doors(struct plim_buf *out, const struct plim_soak_view *v,
                      const struct plim_text_style *style)
{
    if (!v->doors) {
        return;
    }
    const struct plim_door_row *last = &v->doors[PLIM_DOOR_ROWS - 1];
    char first[PLIM__SPAN_TEXT], token[PLIM__SPAN_TEXT], line[300];
    plim_text_heading(out, "Front doors", style);
    snprintf(
        line, sizeof line,
        "good: the first token within %s, each further one within %s on average; clients ask for "
        "%u tokens at most and do not come back when turned away",
        plim__span_text(first, (double)last->door.terms.first_ns),
        plim__span_text(token, (double)last->door.terms.token_ns), last->door.terms.max_tokens);
    plim_text_wrap(out, "  - ", line, style);
    plim_buf_printf(out, "  %-21s %7s %8s %6s %8s %7s %7s %7s %9s %5s %8s %8s\n", "door", "limit",
                    "good /s", "oracle", "tokens/s", "refused", "late", "slow", "preempted", "OOM",
                    "wait p50", "p99");
    for (size_t i = 0; i < PLIM_DOOR_ROWS; i++) {
        text_row(out, &v->doors[i], plim_door_goodput(&last->result));
    }
    plim_buf_text(
        out, "  limits are the best ones found for this traffic; refused, late and slow: of the "
             "requests; preempted: preemptions for each request let in\n");
}

static void json_row(struct plim_jsonw *w, const struct plim_door_row *row)
{
    const struct plim_soak_result *r = &row->result;
    const struct plim_door_result *d = &r->door;
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "door", plim_door_name(&row->door));
    if (row->searched) {
        plim_jsonw_kv_u64(w, "limit", row->door.limit);
        plim_jsonw_kv_u64(w, "limits_tried", row->tried);
    }
    plim_jsonw_kv_real(w, "goodput_per_s", plim_door_goodput(r));
    plim_jsonw_kv_u64(w, "asked", d->asked);
    plim_jsonw_kv_u64(w, "let_in", d->let_in);
    plim_jsonw_kv_u64(w, "turned_away", d->turned_away);
    plim_jsonw_kv_u64(w, "good", d->good);
    plim_jsonw_kv_u64(w, "good_tokens", d->good_tokens);
    plim_jsonw_kv_u64(w, "good_prompt_tokens", d->good_prompt_tokens);
    plim_jsonw_kv_u64(w, "late_first", d->late_first);
    plim_jsonw_kv_u64(w, "slow", d->slow);
    plim_jsonw_kv_u64(w, "preemptions", r->preemptions);
    plim_jsonw_kv_u64(w, "preempted_requests", d->preempted);
    plim_jsonw_kv_u64(w, "num_ooms", r->num_ooms);
    plim_jsonw_kv_u64(w, "first_token_p50_ns", r->latency.first_p50);
    plim_jsonw_kv_u64(w, "first_token_p99_ns", r->latency.first_p99);
    plim_jsonw_kv_u64(w, "total_p50_ns", r->latency.total_p50);
    plim_jsonw_kv_u64(w, "total_p99_ns", r->latency.total_p99);
    plim_jsonw_kv_real(w, "kv_mean_share", r->kv_mean);
    if (row->door.kind == PLIM_DOOR_GATE) {
        plim_jsonw_key(w, "refused_by");
        plim_jsonw_object(w);
        for (uint32_t i = 0; i < PLIMSOLL_GATE_REASONS; i++) {
            if (d->refused[i] > 0) {
                plim_jsonw_kv_u64(w, plimsoll_gate_reason_text(i), d->refused[i]);
            }
        }
        plim_jsonw_end(w);
        plim_jsonw_kv_real(w, "mean_drift", d->mean_drift);
        plim_jsonw_kv_real(w, "worst_drift", d->worst_drift);
    }
    plim_jsonw_end(w);
}

void plim__json_doors(struct plim_jsonw *w, const struct plim_soak_view *v)
{
    if (!v->doors) {
        return;
    }
    const struct plim_door_terms *terms = &v->doors[0].door.terms;
    plim_jsonw_key(w, "front_doors");
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "first_token_target_ns", terms->first_ns);
    plim_jsonw_kv_u64(w, "token_target_ns", terms->token_ns);
    plim_jsonw_kv_u64(w, "max_tokens", terms->max_tokens);
    plim_jsonw_key(w, "doors");
    plim_jsonw_array(w);
    for (size_t i = 0; i < PLIM_DOOR_ROWS; i++) {
        json_row(w, &v->doors[i]);
    }
    plim_jsonw_end(w);
    plim_jsonw_end(w);
}
