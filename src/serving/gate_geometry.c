/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See gate_geometry.h. A server without blocks is given blocks of eight tokens: rounding up costs a request seven
 * tokens, and bytes that are no whole units cost a unit in eight tokens, not in each.
 */

#include "serving/gate_geometry.h"

#include "base/num.h"

#define UNIT   UINT64_C(512) /* bytes */
#define TOKENS 8u            /* of a block, where the server has none */

static bool alike(const struct plimsoll_gate_group *a, const struct plimsoll_gate_group *b)
{
    return a->block_tokens == b->block_tokens && a->cap_tokens == b->cap_tokens &&
           a->extra_blocks == b->extra_blocks;
}

static enum plim_status add(struct plimsoll_gate_config *c, struct plimsoll_gate_group group,
                            struct plim_err *err)
{
    for (uint32_t i = 0; i < c->n_groups; i++) {
        if (alike(&c->groups[i], &group)) {
            c->groups[i].units_per_block += group.units_per_block;
            return PLIM_OK;
        }
    }
    if (c->n_groups == PLIMSOLL_GATE_GROUPS) {
        return plim__fail(err, PLIM_E_UNSUPPORTED,
                          "the model keeps keys and values in more than %u ways",
                          PLIMSOLL_GATE_GROUPS);
    }
    c->groups[c->n_groups++] = group;
    return PLIM_OK;
}

static uint32_t narrow(uint64_t n)
{
    return (uint32_t)plim_min_u64(n, UINT32_MAX);
}

/* A window keeps itself without the token that is being computed, and lies across one block more than it fills. */
static void window_of(struct plimsoll_gate_group *group, enum plim_kv_kind kind, uint32_t window)
{
    if (kind == PLIM_KV_SLIDING && window > 0) {
        group->cap_tokens = window > 1 ? window - 1 : 1;
        group->extra_blocks = 1;
    } else if (kind == PLIM_KV_CHUNKED) {
        group->cap_tokens = window;
    }
}

enum plim_status plim_gate_from_vllm(const struct plim_vllm_start *s,
                                     struct plimsoll_gate_config *config, struct plim_err *err)
{
    struct plimsoll_gate_config c = *config;
    if (s->refusal != PLIM_VLLM_STARTS || s->num_blocks < 2) {
        return plim__fail(err, PLIM_E_DATA, "the engine does not start with these flags");
    }
    if (s->num_blocks - 1 > PLIMSOLL_GATE_UNITS_MAX) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "the pool has more than %llu blocks",
                          (unsigned long long)PLIMSOLL_GATE_UNITS_MAX);
    }
    c.n_groups = 0;
    c.state_units = 0;
    for (uint32_t i = 0; i < s->n_groups; i++) {
        const struct plim_vllm_group *g = &s->groups[i];
        struct plimsoll_gate_group group = {.block_tokens = g->block_size, .units_per_block = 1};
        if (g->kind == PLIM_KV_STATE || g->kind == PLIM_KV_CROSS) {
            c.state_units += narrow(g->request_blocks);
            continue;
        }
        window_of(&group, g->kind, g->window);
        if (group.cap_tokens == 0) { /* tokens are divided over the devices */
            group.block_tokens = narrow((uint64_t)g->block_size * s->settings.at.dcp);
        }
        PLIM_TRY(add(&c, group, err));
    }
    c.capacity_units = s->num_blocks - 1; /* one stands for "no block" */
    c.unit_bytes = s->block_bytes;
    c.max_length = narrow(s->max_model_len);
    c.step_tokens = narrow(s->settings.in_flight_tokens);
    *config = c;
    return PLIM_OK;
}

enum plim_status plim_gate_from_kv(const struct plim_kv_list *list, uint32_t dcp,
                                   uint64_t pool_bytes, struct plimsoll_gate_config *config,
                                   struct plim_err *err)
{
    struct plimsoll_gate_config c = *config;
    uint64_t state = 0;
    struct {
        uint64_t bytes; /* a token */
        struct plimsoll_gate_group group;
    } kinds[PLIMSOLL_GATE_GROUPS];
    uint32_t n = 0;
    if (pool_bytes == 0) {
        return plim__fail(err, PLIM_E_USAGE, "how large is the pool?");
    }
    c.unit_bytes =
        plim_max_u64(UNIT, plim_round_up(pool_bytes / PLIMSOLL_GATE_UNITS_MAX + 1, UNIT));
    for (size_t i = 0; i < list->n; i++) {
        const struct plim_kv_layer *l = &list->items[i];
        struct plimsoll_gate_group group = {.block_tokens = l->interleaved && dcp > 1 ? dcp : 1};
        uint32_t k = 0;
        state += l->state_bytes;
        if (l->token_bytes == 0) {
            continue;
        }
        window_of(&group, l->kind, l->window);
        group.extra_blocks = group.cap_tokens > 0 ? 1 : 0; /* the token being computed */
        while (k < n && !alike(&kinds[k].group, &group)) {
            k++;
        }
        if (k == PLIMSOLL_GATE_GROUPS) {
            return plim__fail(err, PLIM_E_UNSUPPORTED,
                              "the model keeps keys and values in more than %u ways",
                              PLIMSOLL_GATE_GROUPS);
        }
        if (k == n) {
            kinds[n].bytes = 0;
            kinds[n++].group = group;
        }
        kinds[k].bytes += l->token_bytes;
    }
    c.n_groups = 0;
    for (uint32_t k = 0; k < n; k++) {
        struct plimsoll_gate_group group = kinds[k].group;
        group.block_tokens = narrow((uint64_t)TOKENS * group.block_tokens);
        group.units_per_block = narrow(plim_ceil_div(kinds[k].bytes * TOKENS, c.unit_bytes));
        PLIM_TRY(add(&c, group, err));
    }
    c.capacity_units = pool_bytes / c.unit_bytes;
    c.state_units = narrow(plim_ceil_div(state, c.unit_bytes));
    *config = c;
    return PLIM_OK;
}
