/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings parser. One table of keys (PLIM__KEYS) gives the name, the pass that reads it, the
 * releases that know it and the function that takes its value.
 *
 * PyTorch 2.9 and later read the string twice: once for the keys common to all accelerators, once for
 * CUDA's own; each pass skips the other's keys. large_segment_size_mb is looked for before everything
 * else, because it is the floor of two other keys. A missing ':' or ',' goes unnoticed; a missing value
 * is an error. Releases before 2.9 read once and insist on the separators.
 */

#include "alloc/conf.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

struct token {
    struct plim_str text; /* points into tokens.chars */
    size_t at;            /* byte offset in the settings string */
};

struct tokens {
    struct token items[PLIM_CONF_TOKENS];
    size_t n;
    char *chars; /* owned: the string without white space */
    bool strict; /* separators are checked (before 2.9) */
};

enum pass {
    PASS_COMMON, /* AcceleratorAllocatorConfig */
    PASS_CUDA,   /* CUDAAllocatorConfig */
};

/* Reads the value of the key at *i and leaves *i on the value's last token. */
typedef enum plim_status taker(struct plim_conf *conf, const struct tokens *tk, size_t *i,
                               struct plim_err *err);

struct key {
    const char *name;
    enum pass pass;
    uint8_t since; /* minor release of 2.x that brought it */
    taker *take;
};

/* ---- tokens ---------------------------------------------------------------------------------- */

static bool is_separator(char c)
{
    return c == ',' || c == ':' || c == '[' || c == ']';
}

static enum plim_status tokens_split(struct tokens *tk, struct plim_str text, struct plim_err *err)
{
    char *out = malloc(text.n + 1);
    if (!out) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a settings string of %zu bytes",
                          text.n);
    }
    tk->chars = out;
    tk->n = 0;
    bool open = false; /* the last token is a word that may go on */
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (isspace((unsigned char)c)) {
            continue;
        }
        if (!open || is_separator(c)) {
            if (tk->n == PLIM_CONF_TOKENS) {
                return plim__fail(err, PLIM_E_BUDGET, "a settings string of more than %d tokens",
                                  PLIM_CONF_TOKENS);
            }
            tk->items[tk->n++] = (struct token){{out, 0}, i};
        }
        *out++ = c;
        tk->items[tk->n - 1].text.n++;
        open = !is_separator(c);
    }
    return PLIM_OK;
}

static bool token_is(const struct tokens *tk, size_t i, const char *z)
{
    return i < tk->n && plim_str_eq(tk->items[i].text, plim_str_from(z));
}

static enum plim_status token_missing(struct plim_err *err)
{
    plim__fail(err, PLIM_E_USAGE, "Index out of bounds in ConfigTokenizer");
    plim__err_hint(err, "a value is missing at the end of the settings string");
    return PLIM_E_USAGE;
}

static enum plim_status token_at(const struct tokens *tk, size_t i, struct plim_str *out,
                                 struct plim_err *err)
{
    if (i >= tk->n) {
        return token_missing(err);
    }
    *out = tk->items[i].text;
    return PLIM_OK;
}

/* Steps onto the separator behind *i. */
static enum plim_status token_separator(const struct tokens *tk, size_t *i, const char *z,
                                        struct plim_err *err)
{
    ++*i;
    if (*i >= tk->n) {
        return token_missing(err);
    }
    if (tk->strict && !token_is(tk, *i, z)) {
        return plim__fail(err, PLIM_E_USAGE, "Error parsing CachingAllocator settings, expected %s",
                          z);
    }
    return PLIM_OK;
}

/* Steps onto the value behind "key:" and gives it. */
static enum plim_status value_text(const struct tokens *tk, size_t *i, struct plim_str *out,
                                   struct plim_err *err)
{
    PLIM_TRY(token_separator(tk, i, ":", err));
    ++*i;
    return token_at(tk, *i, out, err);
}

/* std::stoull: sign allowed, stops at the first other character, negative values wrap. */
static enum plim_status number_of(struct plim_str s, uint64_t *out, struct plim_err *err)
{
    char z[64];
    size_t n = s.n < sizeof z - 1 ? s.n : sizeof z - 1;
    memcpy(z, s.p, n);
    z[n] = 0;
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(z, &end, 10);
    if (end == z || errno == ERANGE) {
        plim__fail(err, PLIM_E_USAGE, "stoull");
        plim__err_hint(err, "'%.*s' is not a whole number", PLIM_STR_ARG(s));
        return PLIM_E_USAGE;
    }
    *out = v;
    return PLIM_OK;
}

static enum plim_status value_number(const struct tokens *tk, size_t *i, uint64_t *out,
                                     struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(value_text(tk, i, &s, err));
    return number_of(s, out, err);
}

static enum plim_status value_real(const struct tokens *tk, size_t *i, double *out,
                                   struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(value_text(tk, i, &s, err));
    char z[64];
    size_t n = s.n < sizeof z - 1 ? s.n : sizeof z - 1;
    memcpy(z, s.p, n);
    z[n] = 0;
    char *end = NULL;
    errno = 0;
    double v = strtod(z, &end);
    if (end == z || errno == ERANGE) {
        plim__fail(err, PLIM_E_USAGE, "stod");
        plim__err_hint(err, "'%.*s' is not a number", PLIM_STR_ARG(s));
        return PLIM_E_USAGE;
    }
    *out = v;
    return PLIM_OK;
}

static enum plim_status value_bool(const struct tokens *tk, size_t *i, bool *out,
                                   struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(value_text(tk, i, &s, err));
    if (plim_str_eq(s, PLIM_STR("True"))) {
        *out = true;
    } else if (plim_str_eq(s, PLIM_STR("False"))) {
        *out = false;
    } else if (tk->strict) {
        return plim__fail(err, PLIM_E_USAGE, "Expected a single True/False argument for %.*s",
                          PLIM_STR_ARG(tk->items[*i - 2].text));
    } else {
        return plim__fail(
            err, PLIM_E_USAGE,
            "Expected 'True' or 'False' at index %zu in ConfigTokenizer but got '%.*s'", *i,
            PLIM_STR_ARG(s));
    }
    return PLIM_OK;
}

/* ---- the keys -------------------------------------------------------------------------------- */

static enum plim_status take_large_segment(struct plim_conf *conf, const struct tokens *tk,
                                           size_t *i, struct plim_err *err)
{
    uint64_t mib = 0;
    PLIM_TRY(value_number(tk, i, &mib, err));
    if (mib <= PLIM_TORCH_MIN_LARGE / PLIM_MIB) {
        return plim__fail(err, PLIM_E_USAGE,
                          "CachingAllocator option large_segment_size_mb must be > %llu",
                          (unsigned long long)(PLIM_TORCH_MIN_LARGE / PLIM_MIB));
    }
    conf->large_segment = mib * PLIM_MIB;
    return PLIM_OK;
}

/* A size in MiB that must be at least the large segment size. */
static enum plim_status take_floored(const char *name, const struct plim_conf *conf,
                                     const struct tokens *tk, size_t *i, uint64_t *out,
                                     struct plim_err *err)
{
    uint64_t mib = 0;
    uint64_t floor_mib = conf->large_segment / PLIM_MIB;
    PLIM_TRY(value_number(tk, i, &mib, err));
    if (tk->strict ? mib <= floor_mib : mib < floor_mib) {
        return plim__fail(err, PLIM_E_USAGE,
                          "CachingAllocator option %s too small, must be %s %llu", name,
                          tk->strict ? ">" : ">=", (unsigned long long)floor_mib);
    }
    *out = mib * PLIM_MIB; /* wraps like PyTorch's: "-1" is 2^64 - 2^20 */
    return PLIM_OK;
}

static enum plim_status take_max_split(struct plim_conf *conf, const struct tokens *tk, size_t *i,
                                       struct plim_err *err)
{
    return take_floored("max_split_size_mb", conf, tk, i, &conf->max_split, err);
}

static enum plim_status take_non_split(struct plim_conf *conf, const struct tokens *tk, size_t *i,
                                       struct plim_err *err)
{
    return take_floored("max_non_split_rounding_mb", conf, tk, i, &conf->max_non_split_rounding,
                        err);
}

static enum plim_status take_gc(struct plim_conf *conf, const struct tokens *tk, size_t *i,
                                struct plim_err *err)
{
    double v = 0;
    PLIM_TRY(value_real(tk, i, &v, err));
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
static enum plim_status roundup_pair(struct plim_conf *conf, const struct tokens *tk, size_t *i,
                                     struct roundup_state *state, struct plim_err *err)
{
    size_t boundary_at = *i;
    uint64_t divisions = 0;
    uint64_t boundary = 0;
    PLIM_TRY(value_number(tk, i, &divisions, err));
    if (divisions != 0 && !is_power_of_two(divisions)) {
        return plim__fail(
            err, PLIM_E_USAGE,
            "For roundups, the divisions has to be power of 2 or 0 to disable roundup ");
    }
    if (token_is(tk, boundary_at, ">")) {
        size_t from = state->last + (plim_torch_rules_of(conf->version).fill_behind_last ? 1 : 0);
        for (size_t k = from; k < PLIM_ROUND_INTERVALS; k++) {
            conf->roundup[k] = divisions;
        }
        return PLIM_OK;
    }
    PLIM_TRY(number_of(tk->items[boundary_at].text, &boundary, err));
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

static enum plim_status take_roundup(struct plim_conf *conf, const struct tokens *tk, size_t *i,
                                     struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(value_text(tk, i, &s, err));
    if (!plim_str_eq(s, PLIM_STR("["))) {
        uint64_t v = 0;
        PLIM_TRY(number_of(s, &v, err));
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
    while (++*i < tk->n && !token_is(tk, *i, "]")) {
        PLIM_TRY(roundup_pair(conf, tk, i, &state, err));
        if (*i + 1 >= tk->n) {
            return token_missing(err);
        }
        if (!token_is(tk, *i + 1, "]")) {
            PLIM_TRY(token_separator(tk, i, ",", err));
        }
    }
    if (*i >= tk->n) {
        return plim__fail(
            err, PLIM_E_USAGE,
            "Expected closing bracket ']' in ConfigTokenizer but reached end of config");
    }
    return PLIM_OK;
}

static enum plim_status take_expandable(struct plim_conf *conf, const struct tokens *tk, size_t *i,
                                        struct plim_err *err)
{
    return value_bool(tk, i, &conf->expandable, err);
}

static enum plim_status take_pinned_background(struct plim_conf *conf, const struct tokens *tk,
                                               size_t *i, struct plim_err *err)
{
    return value_bool(tk, i, &conf->pinned_background, err);
}

static enum plim_status take_pinned_round(struct plim_conf *conf, const struct tokens *tk,
                                          size_t *i, struct plim_err *err)
{
    uint64_t mib = 0;
    PLIM_TRY(value_number(tk, i, &mib, err));
    conf->pinned_max_round = mib * PLIM_MIB;
    return PLIM_OK;
}

static enum plim_status take_pinned_cached(struct plim_conf *conf, const struct tokens *tk,
                                           size_t *i, struct plim_err *err)
{
    uint64_t mib = 0;
    PLIM_TRY(value_number(tk, i, &mib, err));
    conf->pinned_max_cached = mib * PLIM_MIB;
    return PLIM_OK;
}

static enum plim_status take_backend(struct plim_conf *conf, const struct tokens *tk, size_t *i,
                                     struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(value_text(tk, i, &s, err));
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

static enum plim_status take_release_lock(struct plim_conf *conf, const struct tokens *tk,
                                          size_t *i, struct plim_err *err)
{
    return value_bool(tk, i, &conf->release_lock_on_malloc, err);
}

static enum plim_status take_host_register(struct plim_conf *conf, const struct tokens *tk,
                                           size_t *i, struct plim_err *err)
{
    return value_bool(tk, i, &conf->pinned_host_register, err);
}

static enum plim_status take_catch_all(struct plim_conf *conf, const struct tokens *tk, size_t *i,
                                       struct plim_err *err)
{
    return value_bool(tk, i, &conf->pinned_catch_all, err);
}

static enum plim_status take_capture_reuse(struct plim_conf *conf, const struct tokens *tk,
                                           size_t *i, struct plim_err *err)
{
    return value_bool(tk, i, &conf->capture_reuse, err);
}

static enum plim_status take_reject(struct plim_conf *conf, const struct tokens *tk, size_t *i,
                                    struct plim_err *err)
{
    return value_bool(tk, i, &conf->reject_early, err);
}

static enum plim_status take_fraction(struct plim_conf *conf, const struct tokens *tk, size_t *i,
                                      struct plim_err *err)
{
    double v = 0;
    PLIM_TRY(value_real(tk, i, &v, err));
    if (!(v >= 0.0 && v <= 1.0)) {
        return plim__fail(err, PLIM_E_USAGE,
                          "per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
    }
    conf->memory_fraction = v;
    return PLIM_OK;
}

static enum plim_status take_threads(struct plim_conf *conf, const struct tokens *tk, size_t *i,
                                     struct plim_err *err)
{
    uint64_t v = 0;
    PLIM_TRY(value_number(tk, i, &v, err));
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

static enum plim_status take_reserve_segment(struct plim_conf *conf, const struct tokens *tk,
                                             size_t *i, struct plim_err *err)
{
    uint64_t v = 0;
    PLIM_TRY(value_number(tk, i, &v, err));
    if (v == 0) {
        return plim__fail(err, PLIM_E_USAGE,
                          "Pinned reserve segment size has to be greater than 0 ");
    }
    conf->pinned_reserve_segment = v;
    return PLIM_OK;
}

/* X(name, pass, minor release of 2.x that brought it, taker) */
#define PLIM__KEYS(X)                                                                              \
    X("max_split_size_mb", PASS_COMMON, 0, take_max_split)                                         \
    X("garbage_collection_threshold", PASS_COMMON, 0, take_gc)                                     \
    X("roundup_power2_divisions", PASS_COMMON, 0, take_roundup)                                    \
    X("expandable_segments", PASS_COMMON, 1, take_expandable)                                      \
    X("max_non_split_rounding_mb", PASS_COMMON, 6, take_non_split)                                 \
    X("large_segment_size_mb", PASS_COMMON, 11, take_large_segment)                                \
    X("pinned_use_background_threads", PASS_COMMON, 6, take_pinned_background)                     \
    X("pinned_max_round_threshold_mb", PASS_COMMON, 13, take_pinned_round)                         \
    X("pinned_max_cached_size_mb", PASS_COMMON, 13, take_pinned_cached)                            \
    X("backend", PASS_CUDA, 0, take_backend)                                                       \
    X("release_lock_on_cudamalloc", PASS_CUDA, 1, take_release_lock)                               \
    X("release_lock_on_hipmalloc", PASS_CUDA, 1, take_release_lock)                                \
    X("pinned_use_cuda_host_register", PASS_CUDA, 2, take_host_register)                           \
    X("pinned_use_hip_host_register", PASS_CUDA, 2, take_host_register)                            \
    X("pinned_num_register_threads", PASS_CUDA, 2, take_threads)                                   \
    X("pinned_reserve_segment_size_mb", PASS_CUDA, 10, take_reserve_segment)                       \
    X("pinned_free_catch_all", PASS_CUDA, 11, take_catch_all)                                      \
    X("graph_capture_record_stream_reuse", PASS_CUDA, 9, take_capture_reuse)                       \
    X("per_process_memory_fraction", PASS_CUDA, 10, take_fraction)                                 \
    X("throw_on_cudamalloc_oom", PASS_CUDA, 12, take_reject)

static const struct key keys[] = {
#define PLIM__X(name, pass, since, take) {name, pass, since, take},
    PLIM__KEYS(PLIM__X)
#undef PLIM__X
};

static const struct key *key_find(struct plim_str name)
{
    for (size_t k = 0; k < PLIM_COUNT_OF(keys); k++) {
        if (plim_str_eq(name, plim_str_from(keys[k].name))) {
            return &keys[k];
        }
    }
    return NULL;
}

static bool key_known(const struct key *key, struct plim_torch_version version)
{
    return key && plim_torch_at_least(version, 2, key->since);
}

const char *plim_conf_key(struct plim_torch_version version, size_t i)
{
    for (size_t k = 0; k < PLIM_COUNT_OF(keys); k++) {
        if (key_known(&keys[k], version) && i-- == 0) {
            return keys[k].name;
        }
    }
    return NULL;
}

/* ---- unknown keys ---------------------------------------------------------------------------- */

#define KEY_MAX 48 /* longer words are near to nothing */

/* Levenshtein distance of a to the NUL-terminated b; both shorter than KEY_MAX. */
static size_t distance(struct plim_str a, const char *b)
{
    size_t row[KEY_MAX + 1];
    size_t nb = strlen(b);
    for (size_t j = 0; j <= nb; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a.n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = diagonal + (a.p[i - 1] == b[j - 1] ? 0 : 1);
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[nb];
}

static const char *key_nearest(struct plim_str word, struct plim_torch_version version)
{
    const char *best = NULL;
    size_t best_distance = word.n < KEY_MAX ? word.n / 2 + 1 : 0;
    for (size_t k = 0; k < PLIM_COUNT_OF(keys) && best_distance > 0; k++) {
        size_t d = key_known(&keys[k], version) ? distance(word, keys[k].name) : SIZE_MAX;
        if (d < best_distance) {
            best = keys[k].name;
            best_distance = d;
        }
    }
    return best;
}

static enum plim_status key_unknown(const struct plim_conf *conf, struct plim_str word,
                                    enum pass pass, struct plim_err *err)
{
    const struct key *later = key_find(word);
    const char *near = key_nearest(word, conf->version);
    if (!plim_torch_rules_of(conf->version).common_config) {
        plim__fail(err, PLIM_E_USAGE, "Unrecognized CachingAllocator option: %.*s",
                   PLIM_STR_ARG(word));
    } else {
        plim__fail(err, PLIM_E_USAGE, "Unrecognized key '%.*s' in %s allocator config.",
                   PLIM_STR_ARG(word), pass == PASS_COMMON ? "Accelerator" : "CUDA");
    }
    if (later) {
        plim__err_hint(err, "%s exists since PyTorch 2.%u; the settings are read as %u.%u does",
                       later->name, later->since, conf->version.major, conf->version.minor);
    } else if (near) {
        plim__err_hint(err, "did you mean %s?", near);
    }
    return PLIM_E_USAGE;
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* Steps over the value of a key that the other pass reads; *i is left on the value's last token. */
static enum plim_status value_skip(const struct tokens *tk, size_t *i, struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(value_text(tk, i, &s, err));
    if (!plim_str_eq(s, PLIM_STR("["))) {
        return PLIM_OK;
    }
    while (++*i < tk->n && !token_is(tk, *i, "]")) {
    }
    if (*i >= tk->n) {
        return plim__fail(
            err, PLIM_E_USAGE,
            "Expected closing bracket ']' in ConfigTokenizer but reached end of config");
    }
    return PLIM_OK;
}

static enum plim_status pass_large_segment(struct plim_conf *conf, const struct tokens *tk,
                                           struct plim_err *err)
{
    if (!plim_torch_at_least(conf->version, 2, 11)) {
        return PLIM_OK;
    }
    for (size_t i = 0; i < tk->n; i++) {
        if (token_is(tk, i, "large_segment_size_mb")) {
            return take_large_segment(conf, tk, &i, err);
        }
    }
    return PLIM_OK;
}

static enum plim_status pass_run(struct plim_conf *conf, const struct tokens *tk, enum pass pass,
                                 bool single, struct plim_err *err)
{
    for (size_t i = 0; i < tk->n; i++) {
        struct plim_str word = tk->items[i].text;
        const struct key *key = key_find(word);
        enum plim_status st = PLIM_OK;
        size_t at = tk->items[i].at;
        if (!key_known(key, conf->version)) {
            st = key_unknown(conf, word, pass, err);
        } else if (single || key->pass == pass) {
            st = key->take(conf, tk, &i, err);
        } else {
            st = value_skip(tk, &i, err);
        }
        if (st == PLIM_OK && i + 1 < tk->n) {
            st = token_separator(tk, &i, ",", err);
        }
        if (st != PLIM_OK) {
            plim__err_where(err, "settings, byte");
            plim__err_at(err, at);
            return st;
        }
    }
    return PLIM_OK;
}

static void conf_reset(struct plim_conf *conf)
{
    conf->max_split = UINT64_MAX;
    conf->max_non_split_rounding = conf->large_segment;
    memset(conf->roundup, 0, sizeof conf->roundup);
    conf->gc_threshold = 0;
}

void plim_conf_init(struct plim_conf *conf, struct plim_torch_version version)
{
    memset(conf, 0, sizeof *conf);
    conf->version = version;
    conf->large_segment = PLIM_TORCH_LARGE_SEGMENT;
    conf->memory_fraction = 1.0;
    conf->pinned_max_round = UINT64_MAX;
    conf->pinned_max_cached = UINT64_MAX;
    conf->pinned_threads = 1;
    conf_reset(conf);
}

enum plim_status plim_conf_parse(struct plim_conf *conf, struct plim_str text, struct plim_err *err)
{
    bool single = !plim_torch_rules_of(conf->version).common_config;
    struct tokens tk = {.strict = single};
    enum plim_status st = tokens_split(&tk, text, err);
    if (st == PLIM_OK) {
        st = pass_large_segment(conf, &tk, err);
    }
    if (st == PLIM_OK) {
        conf_reset(conf);
        st = pass_run(conf, &tk, PASS_COMMON, single, err);
    }
    if (st == PLIM_OK && !single) {
        st = pass_run(conf, &tk, PASS_CUDA, false, err);
    }
    free(tk.chars);
    return st;
}
