/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to do. One row for each rule: for which verdict it speaks, when it applies, and what it says.
 * A rule that is already followed (the setting is on) does not speak. Effects are upper bounds computed
 * from the ledger; a replay replaces them by what would really have happened, and silences what would
 * have done nothing.
 */

#include "diagnose/advice_internal.h"

#include "base/bytes.h"
#include "base/num.h"

const char *plim__advice_bytes(struct plim__adviser *a, uint64_t bytes)
{
    char buf[PLIM_BYTES_TEXT];
    return plim_arena_sayf(a->arena, "%s", plim_bytes_format(buf, bytes));
}

struct plim_amount plim__advice_owner(const struct plim__adviser *a, enum plim_owner which)
{
    return a->d->set.ledger.owner[which];
}

uint64_t plim__advice_shortfall(const struct plim__adviser *a)
{
    struct plim_amount free = plim__advice_owner(a, PLIM_OWNER_FREE);
    uint64_t need = a->d->set.ledger.request.bytes;
    return plim_known(free) ? plim_sub_sat(need, free.bytes) : need;
}

struct rule {
    enum plim_subclass subclass;
    bool (*applies)(const struct plim__adviser *a); /* NULL: always */
    struct plim_advice (*advise)(struct plim__adviser *a);
};

static bool has_setting(const struct plim__adviser *a, const char *word)
{
    const struct plim_settings *s = &a->snapshot->settings;
    if (plim_str_find(plim_intern_str(&a->snapshot->strings, s->conf), plim_str_from(word)) !=
        SIZE_MAX) {
        return true;
    }
    for (size_t i = 0; i < a->options->n_set_already; i++) {
        if (plim_str_find(plim_str_from(a->options->set_already[i]), plim_str_from(word)) !=
            SIZE_MAX) {
            return true;
        }
    }
    return false;
}

/* The replay knows that this setting would not have served the request. */
static bool in_vain(const struct plim__adviser *a, enum plim_trial trial)
{
    const struct plim_effect *e = &a->trials.effects[trial];
    return e->known && !e->serves;
}

/* Put what the replay found into an advice that names the trial's setting. */
static struct plim_advice with_replay(struct plim__adviser *a, enum plim_trial trial,
                                      struct plim_advice advice)
{
    const struct plim_effect *e = &a->trials.effects[trial];
    if (e->known && e->serves) {
        advice.effect = plim_amount(e->gain, e->from_anew ? PLIM_HOW_ESTIMATED : PLIM_HOW_REPLAYED);
        advice.why = plim_arena_sayf(
            a->arena, "%s Replayed on this trace%s, the request that failed is served%s.",
            advice.why, e->from_anew ? " from a fresh heap" : "",
            a->d->set.verdict.cls == PLIM_CLASS_FRAGMENTATION
                ? ""
                : "; but that only puts the failure off when more is asked for than fits");
    }
    return advice;
}

static bool expandable_off(const struct plim__adviser *a)
{
    return !in_vain(a, PLIM_TRIAL_EXPANDABLE) && !a->snapshot->settings.expandable_segments &&
           !has_setting(a, "expandable_segments:True");
}

static struct plim_advice advise_expandable(struct plim__adviser *a)
{
    struct plim_advice advice = {
        .action = "Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before "
                  "torch 2.9).",
        .why = "Expandable segments grow in place and give whole pages back, so that free bytes "
               "between "
               "live blocks can serve larger requests.",
        .effect = plim_amount(plim__advice_owner(a, PLIM_OWNER_STRANDED).bytes, PLIM_HOW_ESTIMATED),
        .risk = "Not together with CUDA IPC (custom all-reduce of vLLM and SGLang, shared CUDA "
                "tensors) or "
                "an engine's sleep mode; pages that hold one live block stay.",
        .applies_to = "torch 2.1 and later, Linux; CUDA, not MPS",
    };
    return with_replay(a, PLIM_TRIAL_EXPANDABLE, advice);
}

/* Only on the word of a replay: a split limit may as well make things worse. */
static bool split_serves(const struct plim__adviser *a)
{
    const struct plim_effect *e = &a->trials.effects[PLIM_TRIAL_SPLIT];
    return e->known && e->serves && !has_setting(a, "max_split_size_mb");
}

static struct plim_advice advise_split(struct plim__adviser *a)
{
    bool instead = a->trials.effects[PLIM_TRIAL_EXPANDABLE].serves;
    bool expandable =
        a->snapshot->settings.expandable_segments || has_setting(a, "expandable_segments:True");
    struct plim_advice advice = {
        .action = plim_arena_sayf(
            a->arena,
            "%set PYTORCH_ALLOC_CONF=max_split_size_mb:128%s (plimsoll tune finds the best limit).",
            instead && !expandable ? "Where expandable segments cannot be used, s" : "S",
            expandable ? " in the place of expandable_segments:True" : ""),
        .why = "Large blocks are then kept whole, so that small requests do not pin them.",
        .risk = "Large requests of ever new sizes go to the driver each time, which stalls.",
        .applies_to = "torch 1.10 and later",
    };
    return with_replay(a, PLIM_TRIAL_SPLIT, advice);
}

static struct plim_advice advise_unpin(struct plim__adviser *a)
{
    const struct plim_pin_row *top = a->d->pins.n ? &a->d->pins.items[0] : NULL;
    const char *site = top && top->site ? top->site : "the oldest live blocks";
    return (struct plim_advice){
        .action =
            plim_arena_sayf(a->arena,
                            "Allocate long-lived tensors before the traffic starts, or free them "
                            "sooner: start with %s.",
                            site),
        .why = "A block that outlives its neighbours pins its whole segment.",
        .effect = plim_amount(top ? top->stranded : 0, top ? PLIM_HOW_MEASURED : PLIM_HOW_UNKNOWN),
    };
}

static struct plim_advice advise_buckets(struct plim__adviser *a)
{
    (void)a;
    return (struct plim_advice){
        .action =
            "Round shapes to a few sizes (batch, prompt, resolution), or allocate growing caches "
            "once at their full size.",
        .why = "Requests of ever new sizes cannot reuse the holes that earlier ones left.",
    };
}

/*
 * The private pool that keeps most unused bytes has an identity that the program made: a torch.cuda.MemPool,
 * or a handle that graphs share. A graph's own pool has its number first (c10/cuda/CUDACachingAllocator.cpp,
 * MemPool::MemPool, torch 2.5 and later).
 */
static bool pool_is_users(const struct plim__adviser *a)
{
    const struct plim_pool_row *most = NULL;
    uint64_t most_bytes = 0;
    plim_vec_foreach (row, &a->d->fragmentation.pools) {
        uint64_t unused = row->totals.stranded + row->totals.releasable;
        if (row->pool != 0 && unused > most_bytes) {
            most = row;
            most_bytes = unused;
        }
    }
    return most && a->snapshot->pools.items[most->pool].a == 0;
}

static struct plim_advice advise_pool(struct plim__adviser *a)
{
    return (struct plim_advice){
        .action = "If the pool is a torch.cuda.MemPool: drop it (del pool) when its work is done, "
                  "or make it with use_on_oom=True, so that other requests may use it before they "
                  "fail.",
        .why = "What is freed in a pool is kept for that pool as long as it exists.",
        .effect = plim__advice_owner(a, PLIM_OWNER_PRIVATE_FREE),
        .applies_to = "torch 2.5 and later; use_on_oom 2.9 and later",
    };
}

static struct plim_advice advise_graphs(struct plim__adviser *a)
{
    return (struct plim_advice){
        .action = "Capture fewer graph sizes, or let all graphs share one pool "
                  "(torch.cuda.graph(g, pool=first.pool())); in vLLM: fewer --cuda-graph-sizes or "
                  "a lower "
                  "--max-num-seqs.",
        .why = "Each pool keeps the most it ever used and lends it to nobody.",
        .effect = plim__advice_owner(a, PLIM_OWNER_PRIVATE_FREE),
        .risk = "Sizes that are not captured run without a graph, with more launch overhead.",
    };
}

static struct plim_advice advise_one_stream(struct plim__adviser *a)
{
    (void)a;
    return (struct plim_advice){
        .action =
            "Allocate large tensors on one stream and use them on the others with record_stream(), "
            "or call torch.cuda.empty_cache() between phases that use different streams.",
        .why = "A freed block is only reused on the stream it was allocated on.",
    };
}

static bool rounds_up(const struct plim__adviser *a)
{
    return has_setting(a, "roundup_power2_divisions");
}

/* A block above the limit is handed out whole, and up to 20 MiB larger than the request. */
static bool limits_split(const struct plim__adviser *a)
{
    return has_setting(a, "max_split_size_mb");
}

static struct plim_advice advise_no_split_limit(struct plim__adviser *a)
{
    return (struct plim_advice){
        .action = "Leave max_split_size_mb out, or raise it above the common request sizes "
                  "(plimsoll tune tries both).",
        .why = "A cached block above the limit is handed out whole, though it may be up to "
               "20 MiB larger than the request.",
        .effect = plim__advice_owner(a, PLIM_OWNER_ROUNDING),
        .applies_to = "torch 1.10 and later",
    };
}

static struct plim_advice advise_less_rounding(struct plim__adviser *a)
{
    return (struct plim_advice){
        .action = "Use more roundup_power2_divisions, or leave the setting out.",
        .why = "Every request is rounded up to the next of these divisions.",
        .effect = plim__advice_owner(a, PLIM_OWNER_ROUNDING),
    };
}

static struct plim_advice advise_leak(struct plim__adviser *a)
{
    const struct plim_leak_suspect *s = &a->d->leaks.suspects.items[0];
    const struct plim_site *site = &a->d->sites.sites.items[s->site];
    const char *where = s->site > 0 ? plim_site_text(a->snapshot, site, a->arena)
                                    : "a place that a record with stacks (context=\"all\") names";
    return (struct plim_advice){
        .action = plim_arena_sayf(
            a->arena,
            "Find who keeps the tensors made at %s: a list or dict that only grows, a "
            "stored loss or output without .detach(), a closure or an exception that "
            "is held.",
            where),
        .why = plim_arena_sayf(a->arena,
                               "%s are held beyond a steady state, and every 1,000 allocations add "
                               "%s. A larger card or another allocator setting only delays it.",
                               plim__advice_bytes(a, a->d->leaks.excess),
                               plim__advice_bytes(a, (uint64_t)(s->bytes_per_alloc * 1000))),
        .effect = plim_amount(a->d->leaks.excess, PLIM_HOW_ESTIMATED),
    };
}

static struct plim_advice advise_drop_exception(struct plim__adviser *a)
{
    (void)a;
    return (struct plim_advice){
        .action = "Leave the except block before trying again, and keep no reference to the "
                  "exception (store str(e), or e.with_traceback(None)).",
        .why = "Its traceback holds the frames that the failure went through, and each frame all "
               "its tensors; empty_cache() cannot give back what is still referenced.",
        .effect = plim_amount(a->d->held.bytes, PLIM_HOW_MEASURED),
    };
}

static struct plim_advice advise_bound_cache(struct plim__adviser *a)
{
    return (struct plim_advice){
        .action = "Bound the cache: drop the entries of finished requests, or cap their number.",
        .why = "Entries are added for each request and none was dropped in the trace.",
        .effect = plim_amount(a->d->leaks.excess, PLIM_HOW_ESTIMATED),
    };
}

static struct plim_advice advise_smaller_request(struct plim__adviser *a)
{
    return (struct plim_advice){
        .action =
            "Make this request smaller: a smaller batch, a shorter sequence, chunks, or split the "
            "tensor over several devices.",
        .why = plim_arena_sayf(a->arena, "It asks for %s at once.",
                               plim__advice_bytes(a, a->d->set.ledger.request.bytes)),
    };
}

static struct plim_advice advise_raise_cap(struct plim__adviser *a)
{
    return (struct plim_advice){
        .action =
            plim_arena_sayf(a->arena,
                            "Raise or drop the cap (torch.cuda.set_per_process_memory_fraction, "
                            "per_process_memory_fraction, vGPU quota) by at least %s.",
                            plim__advice_bytes(a, a->d->set.ledger.request.bytes)),
        .why = "The device still had room when the allocator refused.",
        .effect = plim__advice_owner(a, PLIM_OWNER_FREE),
        .risk = "The cap may protect another process on the same card.",
    };
}

static struct plim_advice advise_neighbours(struct plim__adviser *a)
{
    if (plim__advice_owner(a, PLIM_OWNER_OTHER_PROCESSES).how == PLIM_HOW_ESTIMATED) {
        return (struct plim_advice){
            .action = "Find out whose it is: nvidia-smi --query-compute-apps=pid,used_memory,"
                      "process_name --format=csv. Move or stop other processes; when it is this "
                      "one, look at its other libraries (plimsoll record names them).",
            .why = "The device would have room without it.",
            .effect = plim__advice_owner(a, PLIM_OWNER_OTHER_PROCESSES),
        };
    }
    return (struct plim_advice){
        .action = "Find and move or stop the other processes: nvidia-smi "
                  "--query-compute-apps=pid,used_memory,process_name --format=csv",
        .why = "The device would have room without them.",
        .effect = plim__advice_owner(a, PLIM_OWNER_OTHER_PROCESSES),
    };
}

static struct plim_advice advise_own_libraries(struct plim__adviser *a)
{
    return (struct plim_advice){
        .action =
            "Look for memory that libraries of this process hold: NCCL buffers and channels, "
            "cuBLAS and "
            "cuDNN workspaces, CUDA graphs, a second framework; set CUDA_MODULE_LOADING=LAZY.",
        .why = "More than a usual context is held outside PyTorch's allocator.",
        .effect = plim__advice_owner(a, PLIM_OWNER_PROCESS_OTHER),
    };
}

static struct plim_advice advise_leave_cache(struct plim__adviser *a)
{
    return (struct plim_advice){
        .action = "Nothing: the cache is there to be reused. Call torch.cuda.empty_cache() only if "
                  "another "
                  "process needs the memory.",
        .why = "Slack in wholly free segments is released by the allocator itself before it fails.",
        .effect = plim__advice_owner(a, PLIM_OWNER_RELEASABLE),
    };
}

static const struct rule rules[] = {
    {PLIM_SUBCLASS_STRANDED, expandable_off, advise_expandable},
    {PLIM_SUBCLASS_STRANDED, split_serves, advise_split},
    {PLIM_SUBCLASS_STRANDED, NULL, advise_unpin},
    {PLIM_SUBCLASS_STRANDED, NULL, advise_buckets},
    {PLIM_SUBCLASS_PRIVATE_POOL, pool_is_users, advise_pool},
    {PLIM_SUBCLASS_PRIVATE_POOL, NULL, advise_graphs},
    {PLIM_SUBCLASS_STREAM_BOUND, NULL, advise_one_stream},
    {PLIM_SUBCLASS_ROUNDING, rounds_up, advise_less_rounding},
    {PLIM_SUBCLASS_ROUNDING, limits_split, advise_no_split_limit},
    {PLIM_SUBCLASS_GROWING_STACK, NULL, advise_leak},
    {PLIM_SUBCLASS_HELD_EXCEPTION, NULL, advise_drop_exception},
    {PLIM_SUBCLASS_NEVER_FREED_CACHE, NULL, advise_bound_cache},
    {PLIM_SUBCLASS_NEVER_FREED_CACHE, NULL, advise_leak},
    {PLIM_SUBCLASS_SINGLE_REQUEST, NULL, advise_smaller_request},
    {PLIM_SUBCLASS_WORKING_SET, plim__evaluates_with_gradients, plim__advise_no_grad},
    {PLIM_SUBCLASS_WORKING_SET, plim__request_is_large, advise_smaller_request},
    {PLIM_SUBCLASS_WORKING_SET, plim__is_unbalanced, plim__advise_balance},
    {PLIM_SUBCLASS_WORKING_SET, NULL, plim__advise_by_category},
    {PLIM_SUBCLASS_MEMORY_CAP, NULL, advise_raise_cap},
    {PLIM_SUBCLASS_OTHER_PROCESS, NULL, advise_neighbours},
    {PLIM_SUBCLASS_SAME_PROCESS, NULL, advise_own_libraries},
    {PLIM_SUBCLASS_CACHED, NULL, advise_leave_cache},
};

/* Causes that are sufficient too, though not the verdict, get their first rule. */
static enum plim_subclass subclass_of_counterfactual(const char *name)
{
    static const struct {
        const char *name;
        enum plim_subclass subclass;
    } rows[] = {
        {"no_stranded", PLIM_SUBCLASS_STRANDED},
        {"no_private_pools", PLIM_SUBCLASS_PRIVATE_POOL},
        {"no_leak", PLIM_SUBCLASS_GROWING_STACK},
        {"no_held_attempt", PLIM_SUBCLASS_HELD_EXCEPTION},
        {"no_other_processes", PLIM_SUBCLASS_OTHER_PROCESS},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return rows[i].subclass;
        }
    }
    return PLIM_SUBCLASS_NONE;
}

static enum plim_status apply_rules(struct plim__adviser *a, enum plim_subclass subclass,
                                    size_t most, struct plim_err *err)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(rules) && most > 0; i++) {
        if (rules[i].subclass == subclass && (!rules[i].applies || rules[i].applies(a))) {
            PLIM_TRY(plim_vec_push(&a->d->set.advice, err, rules[i].advise(a)));
            most--;
        }
    }
    return PLIM_OK;
}

/* What the replays found, as evidence; or that they could not find anything. */
static enum plim_status tell_replays(struct plim__adviser *a, struct plim_err *err)
{
    if (a->trials.asked && !a->trials.reproduced) {
        return plim_vec_push(&a->d->set.unknowns, err,
                             "What other settings would have done: the replayed trace does not "
                             "fail where the recorded "
                             "one did, so effects are estimates. Record from the first allocation "
                             "on, without a limit "
                             "of entries.");
    }
    for (int i = 0; i < PLIM_TRIAL_COUNT && a->trials.reproduced; i++) {
        const struct plim_effect *e = &a->trials.effects[i];
        if (e->known && !e->serves) {
            const char *text = plim_arena_sayf(
                a->arena, "Replayed under %s, the trace fails at allocation %llu too.", e->conf,
                (unsigned long long)e->alloc_index + 1);
            PLIM_TRY(plim_vec_push(&a->d->set.evidence, err,
                                   (struct plim_evidence){.text = text, .how = PLIM_HOW_REPLAYED}));
        }
    }
    return PLIM_OK;
}

/*
 * Whether what another cause holds is worth an advice: enough of it, or, for the usual holes of a cache,
 * a setting of which the replay knows that it serves the request.
 */
static bool worth_saying(const struct plim__adviser *a, const struct plim_counterfactual *row,
                         enum plim_subclass subclass)
{
    if (subclass == PLIM_SUBCLASS_GROWING_STACK &&
        a->d->set.verdict.subclass == PLIM_SUBCLASS_NEVER_FREED_CACHE) {
        return false; /* the verdict's own rules have said it */
    }
    const struct plim_ledger *l = &a->d->set.ledger;
    uint64_t base = plim_known(l->capacity) ? l->capacity.bytes : l->reserved.bytes;
    const struct plim_effect *e = a->trials.effects;
    return row->gains.bytes >= plim__material_bytes(base) ||
           (subclass == PLIM_SUBCLASS_STRANDED &&
            a->d->set.verdict.subclass == PLIM_SUBCLASS_WORKING_SET && expandable_off(a) &&
            e[PLIM_TRIAL_EXPANDABLE].known && e[PLIM_TRIAL_EXPANDABLE].serves);
}

enum plim_status plim__advise(const struct plim_snapshot *snapshot,
                              const struct plim_diagnose_options *options, struct plim_diagnosis *d,
                              struct plim_err *err)
{
    struct plim__adviser a = {.snapshot = snapshot, .options = options, .d = d, .arena = &d->arena};
    PLIM_TRY(plim__replay_trials(snapshot, options, d, &a.trials, err));
    PLIM_TRY(tell_replays(&a, err));
    enum plim_subclass subclass = d->set.verdict.subclass;
    PLIM_TRY(apply_rules(&a, subclass, SIZE_MAX, err));
    plim_vec_foreach (row, &d->set.counterfactuals) {
        enum plim_subclass other = subclass_of_counterfactual(row->name);
        if (row->fits == PLIM_FITS_YES && other != subclass && other != PLIM_SUBCLASS_NONE &&
            worth_saying(&a, row, other)) {
            PLIM_TRY(apply_rules(&a, other, 1, err));
        }
    }
    return PLIM_OK;
}
