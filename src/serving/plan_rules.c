/* SPDX-License-Identifier: Apache-2.0 */

/* Which rows of rules.def a plan meets. */

#include "serving/plan_rules.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

static bool expandable(const struct plim_plan *p)
{
    return strstr(p->request->settings, "expandable_segments:True") != NULL;
}

static bool given(const struct plim_plan *p, const char *name)
{
    const struct plim_vllm_flag *f = plim_vllm_flag(&p->flags, name);
    return f != NULL && (f->on || f->value != NULL);
}

static bool expandable_with_sleep(const struct plim_plan *p)
{
    return expandable(p) && p->start.settings.sleep_mode;
}

static bool expandable_with_all_reduce(const struct plim_plan *p)
{
    return expandable(p) && p->start.settings.at.tp > 1 && !given(p, "disable-custom-all-reduce");
}

static bool expandable_with_connector(const struct plim_plan *p)
{
    return expandable(p) && given(p, "kv-transfer-config") && !given(p, "enable-cumem-allocator");
}

static bool skips_media(const struct plim_plan *p)
{
    return given(p, "skip-mm-profiling") && p->request->geometry->vision.depth > 0;
}

static bool kv_bytes_given(const struct plim_plan *p)
{
    return p->start.settings.kv_bytes != 0;
}

static bool tight_with_neighbours(const struct plim_plan *p)
{
    return p->request->card.external > 0;
}

static bool nearly_full(const struct plim_plan *p)
{
    return p->start.settings.utilization > 0.97 && p->start.settings.kv_bytes == 0;
}

static bool windows_unsaved(const struct plim_plan *p)
{
    const struct plim_geometry *g = p->request->geometry;
    bool window = false, full = false;
    for (uint32_t i = 0; i < g->n_layers; i++) {
        window = window || g->layers[i].window != 0;
        full = full || g->layers[i].mixer == PLIM_MIXER_FULL;
    }
    return window && full && !p->start.settings.hybrid_manager;
}

static bool heads_replicated(const struct plim_plan *p)
{
    const struct plim_geometry *g = p->request->geometry;
    for (uint32_t i = 0; i < g->n_layers; i++) {
        const struct plim_layer *l = &g->layers[i];
        if (plim_layer_is_attention(l) && l->mixer != PLIM_MIXER_MLA &&
            l->kv_heads < p->start.settings.at.tp) {
            return p->start.settings.at.dcp == 1;
        }
    }
    return false;
}

static bool latent_replicated(const struct plim_plan *p)
{
    const struct plim_geometry *g = p->request->geometry;
    return p->start.settings.at.tp > 1 && p->start.settings.at.dcp == 1 && g->n_layers > 0 &&
           g->layers[g->n_layers - 1].mixer == PLIM_MIXER_MLA;
}

static bool batch_below_seqs(const struct plim_plan *p)
{
    return p->start.settings.batched_tokens < p->start.settings.seqs;
}

static bool logprobs_v1(const struct plim_plan *p)
{
    return !p->start.settings.v2;
}

static const struct row {
    struct plim_plan_rule rule;
    const char *from, *until;
    bool (*met)(const struct plim_plan *p);
} rows[] = {
#define RULE(id, from, until, forbids, met, text, instead, source)                                 \
    {{id, text, instead, source, forbids}, from, until, met},
#include "serving/rules.def"
#undef RULE
};

/* "0.33" as 33 and "1.2" as 1002; patch levels do not count. */
static long release(const char *text)
{
    char *end;
    long major = strtol(text, &end, 10);
    long minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    return major * 1000 + minor;
}

enum plim_status plim__plan_rules(struct plim_arena *arena, struct plim_plan *plan,
                                  struct plim_err *err)
{
    long now = release(plan->request->engine_version);
    void *items;
    PLIM_TRY(plim_arena_array(arena, PLIM_COUNT_OF(rows), sizeof *plan->rules, &items, err));
    plan->rules = items;
    plan->n_rules = 0;
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        bool applies = now >= release(rows[i].from) &&
                       (rows[i].until[0] == '\0' || now < release(rows[i].until));
        if (applies && rows[i].met(plan)) {
            plan->rules[plan->n_rules++] = &rows[i].rule;
        }
    }
    return PLIM_OK;
}
