/* SPDX-License-Identifier: Apache-2.0 */
/* Findings as JSON. See json.h. */

#include "report/json.h"

void plim_json_amount(struct plim_jsonw *w, const char *key, struct plim_amount amount)
{
    if (!plim_known(amount)) {
        return;
    }
    plim_jsonw_key(w, key);
    plim_jsonw_object(w);
    plim_jsonw_kv_u64(w, "bytes", amount.bytes);
    plim_jsonw_kv_text(w, "how", plim_how_text(amount.how));
    plim_jsonw_end(w);
}

void plim_json_class(struct plim_jsonw *w, const struct plim_verdict *verdict)
{
    const char *sub = plim_subclass_text(verdict->subclass);
    plim_jsonw_kv_text(w, "class", plim_class_text(verdict->cls));
    plim_jsonw_kv_text(w, "subclass", *sub ? sub : NULL);
    plim_jsonw_kv_real(w, "confidence", verdict->confidence);
}

void plim_json_verdict(struct plim_jsonw *w, const struct plim_verdict *verdict)
{
    plim_jsonw_key(w, "verdict");
    plim_jsonw_object(w);
    plim_json_class(w, verdict);
    plim_jsonw_kv_text(w, "summary", verdict->summary ? verdict->summary : "");
    plim_jsonw_end(w);
}

/* What process_other is made of, most bytes first; nothing when no recorder saw it. */
static void json_parts(struct plim_jsonw *w, const struct plim_ledger *ledger)
{
    unsigned best = plim_ledger_part_after(ledger, UINT64_MAX, 0);
    if (best == PLIM_OWNERS) {
        return;
    }
    plim_jsonw_key(w, "process_other_by_owner");
    plim_jsonw_array(w);
    for (; best < PLIM_OWNERS;
         best = plim_ledger_part_after(ledger, ledger->part[best].bytes, best)) {
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "owner", plim_ledger_part_label(best));
        plim_json_amount(w, "amount", ledger->part[best]);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

void plim_json_ledger(struct plim_jsonw *w, const struct plim_ledger *ledger)
{
    static const char *const keys[] = {
#define PLIM__X(name, key, label) key,
        PLIM_LEDGER_MAP(PLIM__X)
#undef PLIM__X
    };
    plim_jsonw_key(w, "ledger");
    plim_jsonw_object(w);
    if (ledger->moment) {
        plim_jsonw_kv_text(w, "moment", ledger->moment);
    }
    plim_json_amount(w, "total", ledger->total);
    plim_json_amount(w, "capacity", ledger->capacity);
    plim_json_amount(w, "allocated", ledger->allocated);
    plim_json_amount(w, "reserved", ledger->reserved);
    plim_json_amount(w, "request", ledger->request);
    plim_jsonw_key(w, "owners");
    plim_jsonw_object(w);
    for (int i = 0; i < PLIM_OWNER_COUNT; i++) {
        plim_json_amount(w, keys[i], ledger->owner[i]);
    }
    plim_jsonw_end(w);
    json_parts(w, ledger);
    plim_jsonw_end(w);
}

static void counterfactuals(struct plim_jsonw *w, const struct plim_finding_set *set)
{
    plim_jsonw_key(w, "counterfactuals");
    plim_jsonw_array(w);
    plim_vec_foreach (c, &set->counterfactuals) {
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "name", c->name);
        plim_jsonw_key(w, "fits");
        if (c->fits == PLIM_FITS_UNKNOWN) {
            plim_jsonw_null(w);
        } else {
            plim_jsonw_bool(w, c->fits == PLIM_FITS_YES);
        }
        plim_json_amount(w, "gains", c->gains);
        plim_jsonw_kv_text(w, "text", c->text);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

static void evidence(struct plim_jsonw *w, const struct plim_finding_set *set)
{
    plim_jsonw_key(w, "evidence");
    plim_jsonw_array(w);
    plim_vec_foreach (e, &set->evidence) {
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "text", e->text);
        plim_jsonw_kv_text(w, "how", plim_how_text(e->how));
        plim_json_amount(w, "amount", e->amount);
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

static void advice(struct plim_jsonw *w, const struct plim_finding_set *set)
{
    plim_jsonw_key(w, "advice");
    plim_jsonw_array(w);
    plim_vec_foreach (a, &set->advice) {
        plim_jsonw_object(w);
        plim_jsonw_kv_text(w, "action", a->action);
        plim_jsonw_kv_text(w, "why", a->why ? a->why : "");
        plim_json_amount(w, "effect", a->effect);
        if (a->risk) {
            plim_jsonw_kv_text(w, "risk", a->risk);
        }
        if (a->applies_to) {
            plim_jsonw_kv_text(w, "applies_to", a->applies_to);
        }
        plim_jsonw_end(w);
    }
    plim_jsonw_end(w);
}

void plim_json_finding(struct plim_jsonw *w, const struct plim_finding_set *set)
{
    plim_json_ledger(w, &set->ledger);
    counterfactuals(w, set);
    evidence(w, set);
    advice(w, set);
    plim_jsonw_key(w, "unknowns");
    plim_jsonw_array(w);
    plim_vec_foreach (u, &set->unknowns) {
        plim_jsonw_text(w, *u);
    }
    plim_jsonw_end(w);
}
