/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings parser: passes over the tokens, and help for unknown keys.
 *
 * PyTorch 2.9 and later read the string twice: once for the keys common to all accelerators, once for
 * CUDA's own; each pass skips the other's keys. large_segment_size_mb is looked for before everything
 * else, because it is the floor of two other keys. A missing ':' or ',' goes unnoticed; a missing value
 * is an error. Releases before 2.9 read once and insist on the separators.
 */

#include "alloc/conf_int.h"

#include <stdlib.h>

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
    const struct plim__conf_key *key = NULL;
    for (size_t k = 0; (key = plim__conf_key_at(k)) != NULL && best_distance > 0; k++) {
        size_t d = plim__conf_key_known(key, version) ? distance(word, key->name) : SIZE_MAX;
        if (d < best_distance) {
            best = key->name;
            best_distance = d;
        }
    }
    return best;
}

static enum plim_status key_unknown(const struct plim_conf *conf, struct plim_str word,
                                    enum plim__conf_pass pass, struct plim_err *err)
{
    const struct plim__conf_key *later = plim__conf_key_find(word);
    const char *near = key_nearest(word, conf->version);
    if (!plim_torch_rules_of(conf->version).common_config) {
        plim__fail(err, PLIM_E_USAGE, "Unrecognized CachingAllocator option: %.*s",
                   PLIM_STR_ARG(word));
    } else {
        plim__fail(err, PLIM_E_USAGE, "Unrecognized key '%.*s' in %s allocator config.",
                   PLIM_STR_ARG(word), pass == PLIM__PASS_COMMON ? "Accelerator" : "CUDA");
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
static enum plim_status value_skip(const struct plim__conf_tokens *tk, size_t *i,
                                   struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(plim__conf_value_text(tk, i, &s, err));
    if (!plim_str_eq(s, PLIM_STR("["))) {
        return PLIM_OK;
    }
    while (++*i < tk->n && !plim__conf_token_is(tk, *i, "]")) {
    }
    if (*i >= tk->n) {
        return plim__fail(
            err, PLIM_E_USAGE,
            "Expected closing bracket ']' in ConfigTokenizer but reached end of config");
    }
    return PLIM_OK;
}

static enum plim_status pass_first(struct plim_conf *conf, const struct plim__conf_tokens *tk,
                                   struct plim_err *err)
{
    if (!plim_torch_at_least(conf->version, 2, 11)) {
        return PLIM_OK;
    }
    for (size_t i = 0; i < tk->n; i++) {
        const struct plim__conf_key *key = plim__conf_key_find(tk->items[i].text);
        if (key && key->pass == PLIM__PASS_FIRST) {
            PLIM_TRY(key->take(conf, tk, &i, err));
        }
    }
    return PLIM_OK;
}

static enum plim_status pass_run(struct plim_conf *conf, const struct plim__conf_tokens *tk,
                                 enum plim__conf_pass pass, bool single, struct plim_err *err)
{
    for (size_t i = 0; i < tk->n; i++) {
        struct plim_str word = tk->items[i].text;
        const struct plim__conf_key *key = plim__conf_key_find(word);
        enum plim_status st = PLIM_OK;
        size_t at = tk->items[i].at;
        if (!plim__conf_key_known(key, conf->version)) {
            st = key_unknown(conf, word, pass, err);
        } else if (single || (key->pass == pass && key->pass != PLIM__PASS_FIRST)) {
            st = key->take(conf, tk, &i, err);
        } else {
            st = value_skip(tk, &i, err);
        }
        if (st == PLIM_OK && i + 1 < tk->n) {
            st = plim__conf_token_separator(tk, &i, ",", err);
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
    struct plim__conf_tokens tk = {.strict = single};
    enum plim_status st = plim__conf_tokens_split(&tk, text, err);
    if (st == PLIM_OK) {
        st = pass_first(conf, &tk, err);
    }
    if (st == PLIM_OK) {
        conf_reset(conf);
        st = pass_run(conf, &tk, PLIM__PASS_COMMON, single, err);
    }
    if (st == PLIM_OK && !single) {
        st = pass_run(conf, &tk, PLIM__PASS_CUDA, false, err);
    }
    free(tk.chars);
    return st;
}

const char *plim_conf_key(struct plim_torch_version version, size_t i)
{
    const struct plim__conf_key *key = NULL;
    for (size_t k = 0; (key = plim__conf_key_at(k)) != NULL; k++) {
        if (plim__conf_key_known(key, version) && i-- == 0) {
            return key->name;
        }
    }
    return NULL;
}
