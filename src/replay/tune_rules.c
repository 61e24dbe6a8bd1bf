/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is not tried, and what is to be said of what is. One row for each rule.
 * Sources: pytorch/pytorch issues and pull requests by number; PyTorch's notes on CUDA memory management.
 */

#include "replay/tune_int.h"

#include "base/num.h"

static bool set(const struct plim_knobs *k, enum plim_knob knob)
{
    return k->value[knob] != 0;
}

static bool expandable_with_split(const struct plim__tuner *t, const struct plim_knobs *k)
{
    (void)t;
    return set(k, PLIM_KNOB_EXPANDABLE) && set(k, PLIM_KNOB_MAX_SPLIT);
}

static bool expandable_with_gc(const struct plim__tuner *t, const struct plim_knobs *k)
{
    return set(k, PLIM_KNOB_EXPANDABLE) && set(k, PLIM_KNOB_GC) &&
           !plim_torch_at_least(t->options->version, 2, 5);
}

static bool gc_without_cap(const struct plim__tuner *t, const struct plim_knobs *k)
{
    return set(k, PLIM_KNOB_GC) && !t->has_cap;
}

static bool non_split_alone(const struct plim__tuner *t, const struct plim_knobs *k)
{
    (void)t;
    return set(k, PLIM_KNOB_NON_SPLIT) && !set(k, PLIM_KNOB_MAX_SPLIT);
}

/* cuMemCreate takes multiples of its granularity, 2 MiB: "CUDA driver error: invalid argument". */
static bool expandable_with_odd_pages(const struct plim__tuner *t, const struct plim_knobs *k)
{
    (void)t;
    return set(k, PLIM_KNOB_EXPANDABLE) && k->value[PLIM_KNOB_LARGE_SEGMENT] % 2 != 0;
}

static bool below_large_segment(const struct plim__tuner *t, const struct plim_knobs *k)
{
    uint32_t floor = set(k, PLIM_KNOB_LARGE_SEGMENT) ? k->value[PLIM_KNOB_LARGE_SEGMENT] : 20;
    (void)t;
    return (set(k, PLIM_KNOB_MAX_SPLIT) && k->value[PLIM_KNOB_MAX_SPLIT] < floor) ||
           (set(k, PLIM_KNOB_NON_SPLIT) && k->value[PLIM_KNOB_NON_SPLIT] < floor);
}

static const struct {
    struct plim_exclusion row;
    bool (*applies)(const struct plim__tuner *t, const struct plim_knobs *k); /* NULL: by kind */
} rules[] = {
    {{"expandable_segments:True with max_split_size_mb",
      "cached blocks above the limit can neither be reused nor given back (pytorch#193400, "
      "#123548)",
      "2.1 and later"},
     expandable_with_split},
    {{"expandable_segments:True with garbage_collection_threshold",
      "asserts close to the limit (pytorch#134338)", "2.1 to 2.4"},
     expandable_with_gc},
    {{"garbage_collection_threshold",
      "does nothing without a memory cap (per_process_memory_fraction)", "1.12 and later"},
     gc_without_cap},
    {{"max_non_split_rounding_mb without max_split_size_mb",
      "only concerns blocks above that limit: no effect", "2.6 and later"},
     non_split_alone},
    {{"max_split_size_mb or max_non_split_rounding_mb below large_segment_size_mb (20)",
      "PyTorch refuses it", "all"},
     below_large_segment},
    {{"expandable_segments:True with an odd large_segment_size_mb",
      "the driver maps multiples of 2 MiB: the first large request is an error", "2.11 and later"},
     expandable_with_odd_pages},
    {{"per_process_memory_fraction, throw_on_cudamalloc_oom",
      "a cap makes requests fail earlier; set one to protect a neighbour, not to fit",
      "2.10, 2.12"},
     NULL},
    {{"backend:cudaMallocAsync",
      "the driver decides where blocks lie, which cannot be replayed exactly; it defragments by "
      "mapping, so compare it by a run",
      "2.0 and later"},
     NULL},
};

const struct plim_exclusion *plim__tune_excluded(const struct plim__tuner *t,
                                                 const struct plim_knobs *knobs)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(rules); i++) {
        if (rules[i].applies && rules[i].applies(t, knobs)) {
            return &rules[i].row;
        }
    }
    return NULL;
}

enum plim_status plim__tune_list_exclusions(struct plim__tuner *t, struct plim_err *err)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(rules); i++) {
        if (rules[i].applies == gc_without_cap && t->has_cap) {
            continue;
        }
        if (rules[i].applies == expandable_with_gc &&
            plim_torch_at_least(t->options->version, 2, 5)) {
            continue;
        }
        PLIM_TRY(plim_vec_push(&t->tune->excluded, err, rules[i].row));
    }
    return PLIM_OK;
}

/* By knob, the weightiest first. */
static const struct {
    enum plim_knob knob;
    const char *risk;
    const char *applies_to;
} remarks[] = {
    {PLIM_KNOB_EXPANDABLE,
     "Not together with CUDA IPC (custom all-reduce of vLLM and SGLang, tensors shared between "
     "processes) or an engine's sleep mode; a page that holds one live block stays.",
     "torch 2.1 and later, Linux"},
    {PLIM_KNOB_LARGE_SEGMENT,
     "Requests of 1 to 10 MiB take larger segments: more is cached for them.",
     "torch 2.11 and later"},
    {PLIM_KNOB_NON_SPLIT, "A large cached block may serve a request that much smaller, whole.",
     "torch 2.6 and later"},
    {PLIM_KNOB_MAX_SPLIT,
     "Blocks above the limit are not split: requests of ever new large sizes go to the driver each "
     "time, which stalls.",
     "torch 1.10 and later"},
    {PLIM_KNOB_GC,
     "Works only under a memory cap; released blocks must be had again from the driver.",
     "torch 1.12 and later"},
    {PLIM_KNOB_ROUNDUP, "Every request takes up to one division more than it asked for.",
     "torch 1.12 and later"},
};

const char *plim__tune_risk(const struct plim_knobs *knobs)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(remarks); i++) {
        if (set(knobs, remarks[i].knob)) {
            return remarks[i].risk;
        }
    }
    return NULL;
}

const char *plim__tune_applies_to(const struct plim_knobs *knobs)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(remarks); i++) {
        if (set(knobs, remarks[i].knob)) {
            return remarks[i].applies_to;
        }
    }
    return NULL;
}
