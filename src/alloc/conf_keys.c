/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of the settings string. One table (PLIM__KEYS) gives the name, the pass that reads it, the
 * release that brought it and the function that takes its value.
 */

#include "alloc/conf_int.h"

static enum plim_status take_large_segment(struct plim_conf *conf,
                                           const struct plim__conf_tokens *tk, size_t *i,
                                           struct plim_err *err)
{
    uint64_t mib = 0;
    PLIM_TRY(plim__conf_value_number(tk, i, &mib, err));
    if (mib <= PLIM_TORCH_MIN_LARGE / PLIM_MIB) {
        return plim__fail(err, PLIM_E_USAGE,
                          "CachingAllocator option large_segment_size_mb must be > %llu MB",
                          (unsigned long long)(PLIM_TORCH_MIN_LARGE / PLIM_MIB));
    }
    conf->large_segment = mib * PLIM_MIB;
    return PLIM_OK;
}

/* A size in MiB that must be at least the large segment size. */
static enum plim_status take_floored(const char *name, const struct plim_conf *conf,
                                     const struct plim__conf_tokens *tk, size_t *i, uint64_t *out,
                                     struct plim_err *err)
{
    uint64_t mib = 0;
    uint64_t floor_mib = conf->large_segment / PLIM_MIB;
    PLIM_TRY(plim__conf_value_number(tk, i, &mib, err));
    if (tk->strict ? mib <= floor_mib : mib < floor_mib) {
        return plim__fail(err, PLIM_E_USAGE,
                          "CachingAllocator option %s too small, must be %s %llu", name,
                          tk->strict ? ">" : ">=", (unsigned long long)floor_mib);
    }
    *out = mib * PLIM_MIB; /* wraps like PyTorch's: "-1" is 2^64 - 2^20 */
    return PLIM_OK;
}

static enum plim_status take_max_split(struct plim_conf *conf, const struct plim__conf_tokens *tk,
                                       size_t *i, struct plim_err *err)
{
    return take_floored("max_split_size_mb", conf, tk, i, &conf->max_split, err);
}

static enum plim_status take_non_split(struct plim_conf *conf, const struct plim__conf_tokens *tk,
                                       size_t *i, struct plim_err *err)
{
    return take_floored("max_non_split_rounding_mb", conf, tk, i, &conf->max_non_split_rounding,
                        err);
}

static enum plim_status take_gc(struct plim_conf *conf, const struct plim__conf_tokens *tk,
                                size_t *i, struct plim_err *err)
{
    double v = 0;
    PLIM_TRY(plim__conf_value_real(tk, i, &v, err));
    if (!(v > 0.0 && v < 1.0)) {
        return plim__fail(err, PLIM_E_USAGE,
                          tk->strict
                              ? "garbage_collect_threshold too big, set it 0.0~1.0"
                              : "garbage_collect_threshold is invalid, set it in (0.0, 1.0)");
    }
    conf->gc_threshold = v;
    return PLIM_OK;
}

static bool is_power_of_two(uint64_t v)
{
    return v != 0 && (v & (v - 1)) == 0;
}

struct roundup_state {
    bool first;
    size_t last; /* interval of the last pair with a number */
};

/* One "boundary:divisions" of the list; *i is on the boundary, and left on the divisions. */
static enum plim_status roundup_pair(struct plim_conf *conf, const struct plim__conf_tokens *tk,
                                     size_t *i, struct roundup_state *state, struct plim_err *err)
{
    size_t boundary_at = *i;
    uint64_t divisions = 0;
    uint64_t boundary = 0;
    PLIM_TRY(plim__conf_value_number(tk, i, &divisions, err));
    if (divisions != 0 && !is_power_of_two(divisions)) {
        return plim__fail(
            err, PLIM_E_USAGE,
            "For roundups, the divisions has to be power of 2 or 0 to disable roundup ");
    }
    if (plim__conf_token_is(tk, boundary_at, ">")) {
        size_t from = state->last + (plim_torch_rules_of(conf->version).fill_behind_last ? 1 : 0);
        for (size_t k = from; k < PLIM_ROUND_INTERVALS; k++) {
            conf->roundup[k] = divisions;
        }
        return PLIM_OK;
    }
    PLIM_TRY(plim__conf_number_of(tk->items[boundary_at].text, &boundary, err));
    if (!is_power_of_two(boundary)) {
        return plim__fail(err, PLIM_E_USAGE, "For roundups, the intervals have to be power of 2 ");
    }
    size_t index = 63u - (size_t)__builtin_clzll(boundary);
    index = index < PLIM_ROUND_INTERVALS - 1 ? index : PLIM_ROUND_INTERVALS - 1;
    for (size_t k = 0; state->first && k < index; k++) {
        conf->roundup[k] = divisions;
    }
    conf->roundup[index] = divisions;
    state->first = false;
    state->last = index;
    return PLIM_OK;
}

static enum plim_status take_roundup(struct plim_conf *conf, const struct plim__conf_tokens *tk,
                                     size_t *i, struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(plim__conf_value_text(tk, i, &s, err));
    if (!plim_str_eq(s, PLIM_STR("["))) {
        uint64_t v = 0;
        PLIM_TRY(plim__conf_number_of(s, &v, err));
        if (!is_power_of_two(v)) {
            return plim__fail(err, PLIM_E_USAGE,
                              "For roundups, the divisions has to be power of 2 ");
        }
        for (size_t k = 0; k < PLIM_ROUND_INTERVALS; k++) {
            conf->roundup[k] = v;
        }
        return PLIM_OK;
    }
    struct roundup_state state = {.first = true};
    while (++*i < tk->n && !plim__conf_token_is(tk, *i, "]")) {
        PLIM_TRY(roundup_pair(conf, tk, i, &state, err));
        if (*i + 1 >= tk->n) {
            return plim__conf_token_missing(err);
        }
        if (!plim__conf_token_is(tk, *i + 1, "]")) {
            PLIM_TRY(plim__conf_token_separator(tk, i, ",", err));
        }
    }
    if (*i >= tk->n) {
        return plim__fail(
            err, PLIM_E_USAGE,
            "Expected closing bracket ']' in ConfigTokenizer but reached end of config");
    }
    return PLIM_OK;
}

static enum plim_status take_expandable(struct plim_conf *conf, const struct plim__conf_tokens *tk,
                                        size_t *i, struct plim_err *err)
{
    return plim__conf_value_bool(tk, i, &conf->expandable, err);
}

static enum plim_status take_pinned_background(struct plim_conf *conf,
                                               const struct plim__conf_tokens *tk, size_t *i,
                                               struct plim_err *err)
{
    return plim__conf_value_bool(tk, i, &conf->pinned_background, err);
}

static enum plim_status take_pinned_round(struct plim_conf *conf,
                                          const struct plim__conf_tokens *tk, size_t *i,
                                          struct plim_err *err)
{
    uint64_t mib = 0;
    PLIM_TRY(plim__conf_value_number(tk, i, &mib, err));
    conf->pinned_max_round = mib * PLIM_MIB;
    return PLIM_OK;
}

static enum plim_status take_pinned_cached(struct plim_conf *conf,
                                           const struct plim__conf_tokens *tk, size_t *i,
                                           struct plim_err *err)
{
    uint64_t mib = 0;
    PLIM_TRY(plim__conf_value_number(tk, i, &mib, err));
    conf->pinned_max_cached = mib * PLIM_MIB;
    return PLIM_OK;
}

static enum plim_status take_backend(struct plim_conf *conf, const struct plim__conf_tokens *tk,
                                     size_t *i, struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(plim__conf_value_text(tk, i, &s, err));
    if (plim_str_eq(s, PLIM_STR("native"))) {
        conf->backend = PLIM_CONF_NATIVE;
    } else if (plim_str_eq(s, PLIM_STR("cudaMallocAsync"))) {
        conf->backend = PLIM_CONF_MALLOC_ASYNC;
    } else {
        return plim__fail(err, PLIM_E_USAGE,
                          "Unknown allocator backend, options are native and cudaMallocAsync");
    }
    return PLIM_OK;
}

static enum plim_status take_release_lock(struct plim_conf *conf,
                                          const struct plim__conf_tokens *tk, size_t *i,
                                          struct plim_err *err)
{
    return plim__conf_value_bool(tk, i, &conf->release_lock_on_malloc, err);
}

static enum plim_status take_host_register(struct plim_conf *conf,
                                           const struct plim__conf_tokens *tk, size_t *i,
                                           struct plim_err *err)
{
    return plim__conf_value_bool(tk, i, &conf->pinned_host_register, err);
}

static enum plim_status take_catch_all(struct plim_conf *conf, const struct plim__conf_tokens *tk,
                                       size_t *i, struct plim_err *err)
{
    return plim__conf_value_bool(tk, i, &conf->pinned_catch_all, err);
}

static enum plim_status take_capture_reuse(struct plim_conf *conf,
                                           const struct plim__conf_tokens *tk, size_t *i,
                                           struct plim_err *err)
{
    return plim__conf_value_bool(tk, i, &conf->capture_reuse, err);
}

static enum plim_status take_reject(struct plim_conf *conf, const struct plim__conf_tokens *tk,
                                    size_t *i, struct plim_err *err)
{
    return plim__conf_value_bool(tk, i, &conf->reject_early, err);
}

static enum plim_status take_fraction(struct plim_conf *conf, const struct plim__conf_tokens *tk,
                                      size_t *i, struct plim_err *err)
{
    double v = 0;
    PLIM_TRY(plim__conf_value_real(tk, i, &v, err));
    if (!(v >= 0.0 && v <= 1.0)) {
        return plim__fail(err, PLIM_E_USAGE,
                          "per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
    }
    conf->memory_fraction = v;
    return PLIM_OK;
}

static enum plim_status take_threads(struct plim_conf *conf, const struct plim__conf_tokens *tk,
                                     size_t *i, struct plim_err *err)
{
    uint64_t v = 0;
    PLIM_TRY(plim__conf_value_number(tk, i, &v, err));
    if (!is_power_of_two(v)) {
        return plim__fail(err, PLIM_E_USAGE,
                          "Number of register threads has to be power of 2, got %llu",
                          (unsigned long long)v);
    }
    if (v > 128) {
        return plim__fail(
            err, PLIM_E_USAGE,
            "Number of register threads should be less than or equal to 128, got %llu",
            (unsigned long long)v);
    }
    conf->pinned_threads = v;
    return PLIM_OK;
}

static enum plim_status take_reserve_segment(struct plim_conf *conf,
                                             const struct plim__conf_tokens *tk, size_t *i,
                                             struct plim_err *err)
{
    uint64_t v = 0;
    PLIM_TRY(plim__conf_value_number(tk, i, &v, err));
    if (v == 0) {
        return plim__fail(err, PLIM_E_USAGE,
                          "Pinned reserve segment size has to be greater than 0");
    }
    conf->pinned_reserve_segment = v;
    return PLIM_OK;
}

/* X(name, pass, minor release of 2.x that brought it, taker) */
#define PLIM__KEYS(X)                                                                              \
    X("max_split_size_mb", PLIM__PASS_COMMON, 0, take_max_split)                                   \
    X("garbage_collection_threshold", PLIM__PASS_COMMON, 0, take_gc)                               \
    X("roundup_power2_divisions", PLIM__PASS_COMMON, 0, take_roundup)                              \
    X("expandable_segments", PLIM__PASS_COMMON, 1, take_expandable)                                \
    X("max_non_split_rounding_mb", PLIM__PASS_COMMON, 6, take_non_split)                           \
    X("large_segment_size_mb", PLIM__PASS_FIRST, 11, take_large_segment)                           \
    X("pinned_use_background_threads", PLIM__PASS_COMMON, 6, take_pinned_background)               \
    X("pinned_max_round_threshold_mb", PLIM__PASS_COMMON, 13, take_pinned_round)                   \
    X("pinned_max_cached_size_mb", PLIM__PASS_COMMON, 13, take_pinned_cached)                      \
    X("backend", PLIM__PASS_CUDA, 0, take_backend)                                                 \
    X("release_lock_on_cudamalloc", PLIM__PASS_CUDA, 1, take_release_lock)                         \
    X("release_lock_on_hipmalloc", PLIM__PASS_CUDA, 1, take_release_lock)                          \
    X("pinned_use_cuda_host_register", PLIM__PASS_CUDA, 2, take_host_register)                     \
    X("pinned_use_hip_host_register", PLIM__PASS_CUDA, 2, take_host_register)                      \
    X("pinned_num_register_threads", PLIM__PASS_CUDA, 2, take_threads)                             \
    X("pinned_reserve_segment_size_mb", PLIM__PASS_CUDA, 10, take_reserve_segment)                 \
    X("pinned_free_catch_all", PLIM__PASS_CUDA, 11, take_catch_all)                                \
    X("graph_capture_record_stream_reuse", PLIM__PASS_CUDA, 9, take_capture_reuse)                 \
    X("per_process_memory_fraction", PLIM__PASS_CUDA, 10, take_fraction)                           \
    X("throw_on_cudamalloc_oom", PLIM__PASS_CUDA, 12, take_reject)

static const struct plim__conf_key keys[] = {
#define PLIM__X(name, pass, since, take) {name, pass, since, take},
    PLIM__KEYS(PLIM__X)
#undef PLIM__X
};

const struct plim__conf_key *plim__conf_key_find(struct plim_str name)
{
    for (size_t k = 0; k < PLIM_COUNT_OF(keys); k++) {
        if (plim_str_eq(name, plim_str_from(keys[k].name))) {
            return &keys[k];
        }
    }
    return NULL;
}

bool plim__conf_key_known(const struct plim__conf_key *key, struct plim_torch_version version)
{
    return key && plim_torch_at_least(version, 2, key->since);
}

const struct plim__conf_key *plim__conf_key_at(size_t i)
{
    return i < PLIM_COUNT_OF(keys) ? &keys[i] : NULL;
}
