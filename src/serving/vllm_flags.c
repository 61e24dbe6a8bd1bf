/* SPDX-License-Identifier: Apache-2.0 */

/* A command line of vLLM taken apart. See vllm_flags.h; rules of names as in vllm 0.33.0
 * utils/argparse_utils.py (underscores are dashes, --no-x, --enable-x and --disable-x are opposites, dots). */

#include "serving/vllm_flags.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 4096U
#define NAME_MAX_ 96U

enum kind {
    VALUE,
    LIST,
    BOOL
};

static const struct known {
    const char *name;
    enum kind kind;
    enum plim_vllm_effect effect;
} known[] = {
#define FLAG(name, kind, effect) {name, kind, PLIM_VLLM_EFFECT_##effect},
#define ALIAS(...)
#include "serving/vllm_flags.def"
#undef FLAG
#undef ALIAS
};

static const struct {
    const char *other, *name;
} aliases[] = {
#define FLAG(...)
#define ALIAS(other, name) {other, name},
#include "serving/vllm_flags.def"
#undef FLAG
#undef ALIAS
};

static const struct known *find(const char *name)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(aliases); i++) {
        if (strcmp(aliases[i].other, name) == 0) {
            name = aliases[i].name;
            break;
        }
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(known); i++) {
        if (strcmp(known[i].name, name) == 0) {
            return &known[i];
        }
    }
    return NULL;
}

/* "enable-x" <-> "disable-x" into `out`; false for another name. */
static bool opposite(const char *name, char out[NAME_MAX_])
{
    static const char *const pair[2] = {"enable-", "disable-"};
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(pair[i]);
        size_t m = strlen(pair[1 - i]);
        if (strncmp(name, pair[i], n) == 0 && m + strlen(name + n) < NAME_MAX_) {
            memcpy(out, pair[1 - i], m);
            memcpy(out + m, name + n, strlen(name + n) + 1);
            return true;
        }
    }
    return false;
}

/* The flag of a name, and whether the word turns it on. */
static const struct known *look_up(const char *name, bool *on)
{
    char other[NAME_MAX_];
    *on = true;
    const struct known *k = find(name);
    if (k != NULL) {
        return k;
    }
    bool negated = strncmp(name, "no-", 3) == 0;
    const char *bare = negated ? name + 3 : name;
    k = negated ? find(bare) : NULL;
    if (k != NULL) {
        *on = false;
    } else if (opposite(bare, other)) {
        k = find(other);
        *on = negated;
    }
    return k != NULL && k->kind == BOOL ? k : NULL;
}

/* ---- words -------------------------------------------------------------------------------------- */

struct reader {
    struct plim_arena *arena;
    const char *const *words;
    size_t n, at;
    struct plim_vllm_flags *out;
};

static bool is_flag(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && (word[1] < '0' || word[1] > '9');
}

static bool is_assignment(const char *word)
{
    const char *equals = strchr(word, '=');
    if (equals == NULL || equals == word) {
        return false;
    }
    for (const char *p = word; p < equals; p++) {
        bool fits = (*p >= 'A' && *p <= 'Z') || *p == '_' || (p > word && *p >= '0' && *p <= '9');
        if (!fits) {
            return false;
        }
    }
    return true;
}

/* Splits "--name.part=value" into its pieces; the name with dashes for underscores. */
struct word {
    char name[NAME_MAX_];
    const char *part;  /* arena */
    const char *value; /* inside the word */
};

static void split(struct reader *r, const char *text, struct word *w)
{
    const char *p = text;
    while (*p == '-') {
        p++;
    }
    size_t n = strcspn(p, ".=");
    *w = (struct word){.value = NULL};
    if (n >= NAME_MAX_) {
        return; /* no flag is that long: the empty name is unknown */
    }
    for (size_t i = 0; i < n; i++) {
        w->name[i] = p[i] == '_' ? '-' : p[i];
    }
    if (p[n] == '.') {
        size_t m = strcspn(p + n + 1, "=");
        w->part = plim_arena_sayf(r->arena, "%.*s", (int)m, p + n + 1);
        n += 1 + m;
    }
    if (p[n] == '=') {
        w->value = p + n + 1;
    }
}

static void keep(struct reader *r, const struct known *k, const struct word *w, const char *value,
                 bool on)
{
    r->out->items[r->out->n++] = (struct plim_vllm_flag){
        .name = k->name,
        .part = w->part,
        .value = value,
        .on = on,
        .effect = k->effect,
    };
}

/* A value of the flag at r->at is at hand: in the word, or the next one. */
static enum plim_status take_value(struct reader *r, const struct known *k, const struct word *w,
                                   struct plim_err *err)
{
    const char *value = w->value;
    if (value == NULL) {
        if (r->at + 1 >= r->n || is_flag(r->words[r->at + 1])) {
            enum plim_status st =
                plim__fail(err, PLIM_E_USAGE, "engine flag --%s needs a value", k->name);
            plim__err_where(err, "%s", r->words[r->at]);
            return st;
        }
        value = r->words[++r->at];
    }
    while (k->kind == LIST && r->at + 1 < r->n && !is_flag(r->words[r->at + 1])) {
        const char *joined = plim_arena_sayf(r->arena, "%s %s", value, r->words[++r->at]);
        value = joined;
    }
    keep(r, k, w, value, true);
    return PLIM_OK;
}

static bool is_optimization(const char *text)
{
    return strncmp(text, "-O", 2) == 0 && text[2] != '\0';
}

static enum plim_status read_flag(struct reader *r, struct plim_err *err)
{
    const char *text = r->words[r->at];
    struct word w;
    bool on;
    if (is_optimization(text)) {
        const struct known *k = find("optimization-level");
        w = (struct word){.value = NULL};
        keep(r, k, &w, text[2] == '=' ? text + 3 : text + 2, true);
        return PLIM_OK;
    }
    split(r, text, &w);
    const struct known *k = look_up(w.name, &on);
    if (k == NULL) {
        r->out->unknown[r->out->n_unknown++] = text;
        if (w.value == NULL && r->at + 1 < r->n && !is_flag(r->words[r->at + 1])) {
            r->at++; /* most flags take one */
        }
        return PLIM_OK;
    }
    if (k->kind != BOOL || w.part != NULL) {
        return take_value(r, k, &w, err);
    }
    if (w.value != NULL) {
        enum plim_status st =
            plim__fail(err, PLIM_E_USAGE, "engine flag --%s takes no value", k->name);
        plim__err_where(err, "%s", text);
        return st;
    }
    keep(r, k, &w, NULL, on);
    return PLIM_OK;
}

enum plim_status plim_vllm_flags_read(struct plim_arena *arena, const char *const *words, size_t n,
                                      struct plim_vllm_flags *out, struct plim_err *err)
{
    struct plim_vllm_flags flags = {0};
    struct reader r = {arena, words, n, 0, &flags};
    if (n > WORDS_MAX) {
        return plim__fail(err, PLIM_E_BUDGET, "more than %u words of engine flags", WORDS_MAX);
    }
    void *items, *unknown, *environment;
    PLIM_TRY(plim_arena_array(arena, n, sizeof *flags.items, &items, err));
    PLIM_TRY(plim_arena_array(arena, n, sizeof *flags.unknown, &unknown, err));
    PLIM_TRY(plim_arena_array(arena, n, sizeof *flags.environment, &environment, err));
    flags.items = items;
    flags.unknown = unknown;
    flags.environment = environment;
    while (r.at < n && is_assignment(words[r.at])) {
        flags.environment[flags.n_environment++] = words[r.at++];
    }
    if (r.at < n && strcmp(words[r.at], "vllm") == 0) {
        r.at++;
    }
    if (r.at < n && strcmp(words[r.at], "serve") == 0) {
        flags.serve = true;
        r.at++;
    }
    for (; r.at < n; r.at++) {
        if (is_flag(words[r.at])) {
            PLIM_TRY(read_flag(&r, err));
        } else if (flags.model == NULL && flags.serve) {
            flags.model = words[r.at];
        } else {
            flags.unknown[flags.n_unknown++] = words[r.at];
        }
    }
    *out = flags;
    return plim_arena_status(arena, err);
}

/* ---- looking up ---------------------------------------------------------------------------------- */

const struct plim_vllm_flag *plim_vllm_flag_part(const struct plim_vllm_flags *flags,
                                                 const char *name, const char *part)
{
    for (size_t i = flags->n; i-- > 0;) {
        const struct plim_vllm_flag *f = &flags->items[i];
        bool same = part == NULL ? f->part == NULL : f->part != NULL && strcmp(f->part, part) == 0;
        if (same && strcmp(f->name, name) == 0) {
            return f;
        }
    }
    return NULL;
}

const struct plim_vllm_flag *plim_vllm_flag(const struct plim_vllm_flags *flags, const char *name)
{
    return plim_vllm_flag_part(flags, name, NULL);
}

const char *plim_vllm_environment(const struct plim_vllm_flags *flags, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = flags->n_environment; i-- > 0;) {
        if (strncmp(flags->environment[i], name, n) == 0 && flags->environment[i][n] == '=') {
            return flags->environment[i] + n + 1;
        }
    }
    return NULL;
}

static double unit_of(char letter)
{
    static const struct {
        char letter;
        double unit;
    } units[] = {{'\0', 1},   {'k', 1e3},     {'m', 1e6},          {'g', 1e9},
                 {'K', 1024}, {'M', 1048576}, {'G', 1073741824.0}, {'t', 1e12}};
    for (size_t i = 0; i < PLIM_COUNT_OF(units); i++) {
        if (units[i].letter == letter) {
            return units[i].unit;
        }
    }
    return 0;
}

bool plim_vllm_size(const char *text, int64_t *out)
{
    if (strcmp(text, "auto") == 0 || strcmp(text, "-1") == 0) {
        *out = -1;
        return true;
    }
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    char *end;
    double value = strtod(text, &end);
    double unit = end[0] != '\0' && end[1] != '\0' ? 0 : unit_of(end[0]);
    value *= unit;
    if (unit == 0 || !(value >= 0 && value < 9e18)) {
        return false;
    }
    *out = (int64_t)value;
    return true;
}
