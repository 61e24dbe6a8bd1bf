/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Advice for a working set that does not fit: what could be smaller, elsewhere, or gone sooner. What holds
 * the memory is a guess from names, and is said to be one.
 */

#include "diagnose/advice_internal.h"

#include "base/num.h"

/* One request of a tenth of the device or more: to split it is the nearest thing. */
bool plim__request_is_large(const struct plim__adviser *a)
{
    const struct plim_ledger *l = &a->d->set.ledger;
    uint64_t base = plim_known(l->capacity) ? l->capacity.bytes : l->reserved.bytes;
    return l->request.bytes >= base / 10;
}

/* Another device of the process on which less than half as much is reserved; NO_ID when none. */
static uint32_t emptier_device(const struct plim__adviser *a)
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

bool plim__is_unbalanced(const struct plim__adviser *a)
{
    return emptier_device(a) != PLIM_NO_ID;
}

struct plim_advice plim__advise_balance(struct plim__adviser *a)
{
    uint32_t other = emptier_device(a);
    uint64_t there = plim_totals_of_heap(&a->snapshot->devices.items[other].heap).reserved;
    uint64_t here = a->d->set.ledger.reserved.bytes;
    return (struct plim_advice){
        .action = plim_arena_sayf(a->arena, "Move a part of what is on device %u to device %u.",
                                  a->d->device, other),
        .why = plim_arena_sayf(
            a->arena, "This process reserves %s on device %u and %s on device %u.",
            plim__advice_bytes(a, here), a->d->device, plim__advice_bytes(a, there), other),
        .effect = plim_amount((here - there) / 2, PLIM_HOW_ESTIMATED),
    };
}

/* The known category that holds most live bytes, when that is a quarter of them or more. */
static enum plim_category largest_category(const struct plim__adviser *a)
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
static const struct plim_frame *kept_in_evaluation(const struct plim__adviser *a)
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
        if (plim_frame_is_program(a->snapshot, ids[i]) &&
            is_evaluation(plim_intern_str(&a->snapshot->strings, f->name))) {
            return f;
        }
    }
    return NULL;
}

bool plim__evaluates_with_gradients(const struct plim__adviser *a)
{
    return kept_in_evaluation(a) != NULL;
}

struct plim_advice plim__advise_no_grad(struct plim__adviser *a)
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
                               top->blocks, plim__advice_bytes(a, top->bytes)),
        .effect = plim_amount(top->bytes, PLIM_HOW_ESTIMATED),
    };
}

/* Next to nothing was freed in a history that is complete: the program was still filling the device. */
static bool still_filling(const struct plim__adviser *a)
{
    return a->d->complete && a->d->history.frees * 20 < a->d->history.allocs;
}

/* What shrinks the category that holds most live bytes. */
struct plim_advice plim__advise_by_category(struct plim__adviser *a)
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
    const char *less = top == PLIM_CATEGORY_UNKNOWN && still_filling(a)
                           ? "Put less on the device: data batch by batch, a checkpoint by way of "
                             "the host (map_location=\"cpu\"), a smaller model or batch"
                           : what[top];
    const char *looks =
        top != PLIM_CATEGORY_UNKNOWN
            ? plim_arena_sayf(a->arena, "%s of the live bytes look like %s (a guess from names)",
                              plim__advice_bytes(a, a->d->by_category[top]),
                              plim_category_text(top))
        : a->d->blame.n > 0 && a->d->blame.items[0].stack != PLIM_NO_STACK && !a->d->too_late
            ? plim_arena_sayf(a->arena, "Most of the live bytes, %s, are from %s",
                              plim__advice_bytes(a, a->d->blame.items[0].bytes),
                              a->d->blame.items[0].site)
            : "Who holds the live bytes is not known";
    return (struct plim_advice){
        .action = plim_arena_sayf(a->arena, "%s: at least %s less must be live.", less,
                                  plim__advice_bytes(a, plim__advice_shortfall(a))),
        .why = plim_arena_sayf(
            a->arena, "%s; allocator settings could give at most %s.", looks,
            plim__advice_bytes(a, plim__advice_owner(a, PLIM_OWNER_STRANDED).bytes)),
        .effect = plim_amount(plim__advice_shortfall(a), PLIM_HOW_COMPUTED),
    };
}
