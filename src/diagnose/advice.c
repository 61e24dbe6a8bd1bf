/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to do. One row for each rule: for which verdict it speaks, when it applies, and what it says.
 * A rule that is already followed (the setting is on) does not speak. Effects are upper bounds computed
 * from the ledger; a replay replaces them by what would really have happened, and silences what would
 * have done nothing.
 */

#include "diagnose/causes.h"
#include "diagnose/replayed.h"

#include "base/bytes.h"
#include "base/num.h"

struct adviser {
    const struct plim_snapshot *snapshot;
    const struct plim_diagnose_options *options;
    struct plim_diagnosis *d;
    struct plim_arena *arena;
    struct plim_trials trials;
};

struct rule {
    enum plim_subclass subclass;
    bool (*applies)(const struct adviser *a); /* NULL: always */
    struct plim_advice (*advise)(struct adviser *a);
};

static const char *bytes_text(struct adviser *a, uint64_t bytes)
{
    char buf[PLIM_BYTES_TEXT];
    return plim_arena_sayf(a->arena, "%s", plim_bytes_format(buf, bytes));
}

static struct plim_amount owner(const struct adviser *a, enum plim_owner which)
{
    return a->d->set.ledger.owner[which];
}

static uint64_t shortfall(const struct adviser *a)
{
    struct plim_amount free = owner(a, PLIM_OWNER_FREE);
    uint64_t need = a->d->set.ledger.request.bytes;
    return plim_known(free) ? plim_sub_sat(need, free.bytes) : need;
}

static bool has_setting(const struct adviser *a, const char *word)
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
static bool in_vain(const struct adviser *a, enum plim_trial trial)
{
    const struct plim_effect *e = &a->trials.effects[trial];
    return e->known && !e->serves;
}

/* Put what the replay found into an advice that names the trial's setting. */
static struct plim_advice with_replay(struct adviser *a, enum plim_trial trial,
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

static bool expandable_off(const struct adviser *a)
{
    return !in_vain(a, PLIM_TRIAL_EXPANDABLE) && !a->snapshot->settings.expandable_segments &&
           !has_setting(a, "expandable_segments:True");
}

static struct plim_advice advise_expandable(struct adviser *a)
{
    struct plim_advice advice = {
        .action = "Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before "
                  "torch 2.9).",
        .why = "Expandable segments grow in place and give whole pages back, so that free bytes "
               "between "
               "live blocks can serve larger requests.",
        .effect = plim_amount(owner(a, PLIM_OWNER_STRANDED).bytes, PLIM_HOW_ESTIMATED),
        .risk = "Not together with CUDA IPC (custom all-reduce of vLLM and SGLang, shared CUDA "
                "tensors) or "
                "an engine's sleep mode; pages that hold one live block stay.",
        .applies_to = "torch 2.1 and later, Linux; CUDA, not MPS",
    };
    return with_replay(a, PLIM_TRIAL_EXPANDABLE, advice);
}

/* Only on the word of a replay: a split limit may as well make things worse. */
static bool split_serves(const struct adviser *a)
{
    const struct plim_effect *e = &a->trials.effects[PLIM_TRIAL_SPLIT];
    return e->known && e->serves && !has_setting(a, "max_split_size_mb");
}

static struct plim_advice advise_split(struct adviser *a)
{
    bool instead = a->trials.effects[PLIM_TRIAL_EXPANDABLE].serves;
    struct plim_advice advice = {
        .action = plim_arena_sayf(
            a->arena,
            "%set PYTORCH_ALLOC_CONF=max_split_size_mb:128 (plimsoll tune finds the best limit).",
            instead ? "Where expandable segments cannot be used, s" : "S"),
        .why = "Large blocks are then kept whole, so that small requests do not pin them.",
        .risk = "Large requests of ever new sizes go to the driver each time, which stalls.",
        .applies_to = "torch 1.10 and later",
    };
    return with_replay(a, PLIM_TRIAL_SPLIT, advice);
}

static struct plim_advice advise_unpin(struct adviser *a)
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

static struct plim_advice advise_buckets(struct adviser *a)
{
    (void)a;
    return (struct plim_advice){
        .action =
            "Round shapes to a few sizes (batch, prompt, resolution), or allocate growing caches "
            "once at their full size.",
        .why = "Requests of ever new sizes cannot reuse the holes that earlier ones left.",
    };
}

static struct plim_advice advise_graphs(struct adviser *a)
{
    return (struct plim_advice){
        .action = "Capture fewer graph sizes, or let all graphs share one pool "
                  "(torch.cuda.graph(g, pool=first.pool())); in vLLM: fewer --cuda-graph-sizes or "
                  "a lower "
                  "--max-num-seqs.",
        .why = "Each pool keeps the most it ever used and lends it to nobody.",
        .effect = owner(a, PLIM_OWNER_PRIVATE_FREE),
        .risk = "Sizes that are not captured run without a graph, with more launch overhead.",
    };
}

static struct plim_advice advise_one_stream(struct adviser *a)
{
    (void)a;
    return (struct plim_advice){
        .action =
            "Allocate large tensors on one stream and use them on the others with record_stream(), "
            "or call torch.cuda.empty_cache() between phases that use different streams.",
        .why = "A freed block is only reused on the stream it was allocated on.",
    };
}

static bool rounds_up(const struct adviser *a)
{
    return has_setting(a, "roundup_power2_divisions");
}

static struct plim_advice advise_less_rounding(struct adviser *a)
{
    return (struct plim_advice){
        .action = "Use more roundup_power2_divisions, or leave the setting out.",
        .why = "Every request is rounded up to the next of these divisions.",
        .effect = owner(a, PLIM_OWNER_ROUNDING),
    };
}

static struct plim_advice advise_leak(struct adviser *a)
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
                               bytes_text(a, a->d->leaks.excess),
                               bytes_text(a, (uint64_t)(s->bytes_per_alloc * 1000))),
        .effect = plim_amount(a->d->leaks.excess, PLIM_HOW_ESTIMATED),
    };
}

static struct plim_advice advise_drop_exception(struct adviser *a)
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

static struct plim_advice advise_bound_cache(struct adviser *a)
{
    return (struct plim_advice){
        .action = "Bound the cache: drop the entries of finished requests, or cap their number.",
        .why = "Entries are added for each request and none was dropped in the trace.",
        .effect = plim_amount(a->d->leaks.excess, PLIM_HOW_ESTIMATED),
    };
}

static struct plim_advice advise_smaller_request(struct adviser *a)
{
    return (struct plim_advice){
        .action =
            "Make this request smaller: a smaller batch, a shorter sequence, chunks, or split the "
            "tensor over several devices.",
        .why = plim_arena_sayf(a->arena, "It asks for %s at once.",
                               bytes_text(a, a->d->set.ledger.request.bytes)),
    };
}

/* One request of a tenth of the device or more: to split it is the nearest thing. */
static bool request_is_large(const struct adviser *a)
{
    const struct plim_ledger *l = &a->d->set.ledger;
    uint64_t base = plim_known(l->capacity) ? l->capacity.bytes : l->reserved.bytes;
    return l->request.bytes >= base / 10;
}

/* Another device of the process on which less than half as much is reserved; NO_ID when none. */
static uint32_t emptier_device(const struct adviser *a)
{
    uint64_t least = a->d->set.ledger.reserved.bytes / 2;
    uint32_t found = PLIM_NO_ID;
    for (uint32_t i = 0; i < a->snapshot->devices.n; i++) {
        uint64_t reserved = plim_totals_of_heap(&a->snapshot->devices.items[i].heap).reserved;
        if (i != a->d->device && reserved > 0 && reserved < least) {
            least = reserved;
            found = i;
        }
    }
    return found;
}

static bool is_unbalanced(const struct adviser *a)
{
    return emptier_device(a) != PLIM_NO_ID;
}

static struct plim_advice advise_balance(struct adviser *a)
{
    uint32_t other = emptier_device(a);
    uint64_t there = plim_totals_of_heap(&a->snapshot->devices.items[other].heap).reserved;
    uint64_t here = a->d->set.ledger.reserved.bytes;
    return (struct plim_advice){
        .action = plim_arena_sayf(a->arena, "Move a part of what is on device %u to device %u.",
                                  a->d->device, other),
        .why =
            plim_arena_sayf(a->arena, "This process reserves %s on device %u and %s on device %u.",
                            bytes_text(a, here), a->d->device, bytes_text(a, there), other),
        .effect = plim_amount((here - there) / 2, PLIM_HOW_ESTIMATED),
    };
}

/* The known category that holds most live bytes, when that is a quarter of them or more. */
static enum plim_category largest_category(const struct adviser *a)
{
    enum plim_category top = PLIM_CATEGORY_UNKNOWN;
    uint64_t most = a->d->set.ledger.allocated.bytes / 4;
    for (int c = PLIM_CATEGORY_UNKNOWN + 1; c < PLIM_CATEGORY_COUNT; c++) {
        if (a->d->by_category[c] > most) {
            most = a->d->by_category[c];
            top = (enum plim_category)c;
        }
    }
    return top;
}

/* Names of functions in which nobody wants gradients. */
static bool is_evaluation(struct plim_str name)
{
    static const char *const words[] = {"eval", "valid", "infer", "predict", "test"};
    for (size_t i = 0; i < PLIM_COUNT_OF(words); i++) {
        if (plim_str_find(name, plim_str_from(words[i])) != SIZE_MAX) {
            return true;
        }
    }
    return false;
}

/*
 * The function for evaluation, by its name, under which most bytes live, when these are activations of
 * several blocks and a quarter of all: with gradients off each layer's output goes when the next is made.
 */
static const struct plim_frame *kept_in_evaluation(const struct adviser *a)
{
    const struct plim_blame_row *top = a->d->blame.n ? &a->d->blame.items[0] : NULL;
    if (!top || top->category != PLIM_CATEGORY_ACTIVATIONS || top->blocks < 6 ||
        top->bytes < a->d->set.ledger.allocated.bytes / 4) {
        return NULL;
    }
    size_t n;
    const uint32_t *ids = plim_stacks_frames(&a->snapshot->stacks, top->stack, &n);
    for (size_t i = 0; i < n; i++) {
        const struct plim_frame *f = &a->snapshot->stacks.frames.items[ids[i]];
        if (is_evaluation(plim_intern_str(&a->snapshot->strings, f->name))) {
            return f;
        }
    }
    return NULL;
}

static bool evaluates_with_gradients(const struct adviser *a)
{
    return kept_in_evaluation(a) != NULL;
}

static struct plim_advice advise_no_grad(struct adviser *a)
{
    const struct plim_frame *f = kept_in_evaluation(a);
    const struct plim_blame_row *top = &a->d->blame.items[0];
    return (struct plim_advice){
        .action = plim_arena_sayf(
            a->arena, "Run %.*s under torch.inference_mode() or torch.no_grad(), if it is not.",
            PLIM_STR_ARG(plim_intern_str(&a->snapshot->strings, f->name))),
        .why = plim_arena_sayf(a->arena,
                               "%u blocks, %s, made there live at the same time, as if kept for a "
                               "backward pass; model.eval() alone does not turn that off.",
                               top->blocks, bytes_text(a, top->bytes)),
        .effect = plim_amount(top->bytes, PLIM_HOW_ESTIMATED),
    };
}

/* What shrinks the category that holds most live bytes. */
static struct plim_advice advise_by_category(struct adviser *a)
{
    static const char *const what[PLIM_CATEGORY_COUNT] = {
        [PLIM_CATEGORY_UNKNOWN] = "Lower the batch size or sequence length",
        [PLIM_CATEGORY_WEIGHTS] =
            "Use a smaller or quantized model, or shard the weights over more devices",
        [PLIM_CATEGORY_KV_CACHE] =
            "Shorten the context, admit fewer sequences at once, or use an 8-bit KV "
            "cache",
        [PLIM_CATEGORY_OPTIMIZER] =
            "Shard or offload the optimizer state (ZeRO, FSDP), or use an 8-bit "
            "optimizer",
        [PLIM_CATEGORY_GRADIENTS] =
            "Accumulate over smaller micro-batches, and free gradients with "
            "set_to_none=True",
        [PLIM_CATEGORY_ACTIVATIONS] = "Use activation checkpointing or a smaller batch or sequence",
        [PLIM_CATEGORY_WORKSPACE] = "Limit library workspaces (CUBLAS_WORKSPACE_CONFIG)",
        [PLIM_CATEGORY_COMMUNICATION] = "Use smaller communication buckets",
    };
    enum plim_category top = largest_category(a);
    const char *looks =
        top != PLIM_CATEGORY_UNKNOWN
            ? plim_arena_sayf(a->arena, "%s of the live bytes look like %s (a guess from names)",
                              bytes_text(a, a->d->by_category[top]), plim_category_text(top))
        : a->d->blame.n > 0 && a->d->blame.items[0].stack != PLIM_NO_STACK && !a->d->too_late
            ? plim_arena_sayf(a->arena, "Most of the live bytes, %s, are from %s",
                              bytes_text(a, a->d->blame.items[0].bytes), a->d->blame.items[0].site)
            : "Who holds the live bytes is not known";
    return (struct plim_advice){
        .action = plim_arena_sayf(a->arena, "%s: at least %s less must be live.", what[top],
                                  bytes_text(a, shortfall(a))),
        .why = plim_arena_sayf(a->arena, "%s; allocator settings could give at most %s.", looks,
                               bytes_text(a, owner(a, PLIM_OWNER_STRANDED).bytes)),
        .effect = plim_amount(shortfall(a), PLIM_HOW_COMPUTED),
    };
}

static struct plim_advice advise_raise_cap(struct adviser *a)
{
    return (struct plim_advice){
        .action =
            plim_arena_sayf(a->arena,
                            "Raise or drop the cap (torch.cuda.set_per_process_memory_fraction, "
                            "per_process_memory_fraction, vGPU quota) by at least %s.",
                            bytes_text(a, a->d->set.ledger.request.bytes)),
        .why = "The device still had room when the allocator refused.",
        .effect = owner(a, PLIM_OWNER_FREE),
        .risk = "The cap may protect another process on the same card.",
    };
}

static struct plim_advice advise_neighbours(struct adviser *a)
{
    return (struct plim_advice){
        .action = "Find and move or stop the other processes: nvidia-smi "
                  "--query-compute-apps=pid,used_memory,process_name --format=csv",
        .why = "The device would have room without them.",
        .effect = owner(a, PLIM_OWNER_OTHER_PROCESSES),
    };
}

static struct plim_advice advise_own_libraries(struct adviser *a)
{
    return (struct plim_advice){
        .action =
            "Look for memory that libraries of this process hold: NCCL buffers and channels, "
            "cuBLAS and "
            "cuDNN workspaces, CUDA graphs, a second framework; set CUDA_MODULE_LOADING=LAZY.",
        .why = "More than a usual context is held outside PyTorch's allocator.",
        .effect = owner(a, PLIM_OWNER_PROCESS_OTHER),
    };
}

static struct plim_advice advise_leave_cache(struct adviser *a)
{
    return (struct plim_advice){
        .action = "Nothing: the cache is there to be reused. Call torch.cuda.empty_cache() only if "
                  "another "
                  "process needs the memory.",
        .why = "Slack in wholly free segments is released by the allocator itself before it fails.",
        .effect = owner(a, PLIM_OWNER_RELEASABLE),
    };
}

static const struct rule rules[] = {
    {PLIM_SUBCLASS_STRANDED, expandable_off, advise_expandable},
    {PLIM_SUBCLASS_STRANDED, split_serves, advise_split},
    {PLIM_SUBCLASS_STRANDED, NULL, advise_unpin},
    {PLIM_SUBCLASS_STRANDED, NULL, advise_buckets},
    {PLIM_SUBCLASS_PRIVATE_POOL, NULL, advise_graphs},
    {PLIM_SUBCLASS_STREAM_BOUND, NULL, advise_one_stream},
    {PLIM_SUBCLASS_ROUNDING, rounds_up, advise_less_rounding},
    {PLIM_SUBCLASS_GROWING_STACK, NULL, advise_leak},
    {PLIM_SUBCLASS_HELD_EXCEPTION, NULL, advise_drop_exception},
    {PLIM_SUBCLASS_NEVER_FREED_CACHE, NULL, advise_bound_cache},
    {PLIM_SUBCLASS_NEVER_FREED_CACHE, NULL, advise_leak},
    {PLIM_SUBCLASS_SINGLE_REQUEST, NULL, advise_smaller_request},
    {PLIM_SUBCLASS_WORKING_SET, evaluates_with_gradients, advise_no_grad},
    {PLIM_SUBCLASS_WORKING_SET, request_is_large, advise_smaller_request},
    {PLIM_SUBCLASS_WORKING_SET, is_unbalanced, advise_balance},
    {PLIM_SUBCLASS_WORKING_SET, NULL, advise_by_category},
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

static enum plim_status apply_rules(struct adviser *a, enum plim_subclass subclass, size_t most,
                                    struct plim_err *err)
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
static enum plim_status tell_replays(struct adviser *a, struct plim_err *err)
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
static bool worth_saying(const struct adviser *a, const struct plim_counterfactual *row,
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
    struct adviser a = {.snapshot = snapshot, .options = options, .d = d, .arena = &d->arena};
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
