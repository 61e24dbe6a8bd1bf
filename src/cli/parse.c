/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The option parser: command line > environment > config file > default. See parse.h for the grammar.
 *
 * Two passes: the command line is split into (option, text) pairs and arguments; then each option of
 * the verb takes its value from the first source that has one and converts it into its field.
 */

#include "cli/parse.h"

#include "base/bytes.h"
#include "base/scalar.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* One option met on the command line. */
struct typed {
    const struct plim_option *option;
    const char *text;
};

struct parser {
    const struct plim_verb *verb;
    int argc;
    char *const *argv;
    int next;                     /* index in argv */
    PLIM_VEC(struct typed) typed; /* in the order typed */
    const char **args;            /* arena, room for argc */
    size_t n_args;
    const struct plim_surroundings *around;
    struct plim_arena *arena;
    void *values; /* the verb's struct */
};

char *plim_option_env(const struct plim_option *option, char buf[PLIM_ENV_NAME])
{
    int n = snprintf(buf, PLIM_ENV_NAME, "PLIMSOLL_%s", option->name);
    for (int i = 0; i < n && i < PLIM_ENV_NAME - 1; i++) {
        buf[i] = buf[i] == '-' ? '_' : (char)toupper((unsigned char)buf[i]);
    }
    return buf;
}

bool plim_option_is_ambient(const struct plim_option *option)
{
    return strcmp(option->name, "help") != 0 && strcmp(option->name, "output") != 0;
}

/* ---- conversion of one value ---- */

static enum plim_status bad_value(struct plim_err *err, const char *origin, const char *text,
                                  const char *wanted)
{
    enum plim_status st = plim__fail(err, PLIM_E_USAGE, "'%s' is not %s", text, wanted);
    plim__err_where(err, "%s", origin);
    return st;
}

static enum plim_status set_flag(const char *text, const char *origin, bool *out,
                                 struct plim_err *err)
{
    return plim_flag_parse(text, out) ? PLIM_OK : bad_value(err, origin, text, "yes or no");
}

/* A choice that only another verb's option of the same name offers. */
static bool meant_for_others(const struct plim_option *option, const char *text)
{
    size_t n = 0;
    const struct plim_verb *verbs = plim_verbs(&n);
    if (option->kind != PLIM_OPT_CHOICE || plim_choice_offers(option->arg, text)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const struct plim_option *same =
            plim_option_find(&verbs[i], option->name, strlen(option->name));
        if (same != NULL && same->kind == PLIM_OPT_CHOICE && plim_choice_offers(same->arg, text)) {
            return true;
        }
    }
    return false;
}

static enum plim_status set_choice(const struct plim_option *option, const char *text,
                                   const char *origin, const char **out, struct plim_err *err)
{
    if (plim_choice_offers(option->arg, text)) {
        *out = text;
        return PLIM_OK;
    }
    enum plim_status st = plim__fail(err, PLIM_E_USAGE, "'%s' is not one of %s", text, option->arg);
    plim__err_where(err, "%s", origin);
    return st;
}

static enum plim_status set_count(const char *text, const char *origin, struct plim_opt_u64 *out,
                                  struct plim_err *err)
{
    out->given = plim_count_parse(text, &out->value);
    return out->given ? PLIM_OK : bad_value(err, origin, text, "a whole number");
}

static enum plim_status set_real(const char *text, const char *origin, double *out,
                                 struct plim_err *err)
{
    return plim_real_parse(text, out) ? PLIM_OK : bad_value(err, origin, text, "a number");
}

static enum plim_status set_duration(const char *text, const char *origin, struct plim_opt_u64 *out,
                                     struct plim_err *err)
{
    out->given = plim_duration_parse(text, &out->value);
    return out->given ? PLIM_OK
                      : bad_value(err, origin, text, "a duration such as 500ms, 90s or 5m");
}

static enum plim_status set_size(const char *text, const char *origin, struct plim_opt_u64 *out,
                                 struct plim_err *err)
{
    uint64_t bytes = 0;
    if (plim_bytes_parse(plim_str_from(text), &bytes, NULL, NULL) != PLIM_OK) {
        return bad_value(err, origin, text, "a size such as 24GiB or 512MiB");
    }
    *out = (struct plim_opt_u64){bytes, true};
    return PLIM_OK;
}

static enum plim_status list_add(struct plim_opt_list *list, const char *text,
                                 struct plim_arena *arena, struct plim_err *err)
{
    void *items = NULL;
    PLIM_TRY(plim_arena_array(arena, list->n + 1, sizeof(*list->items), &items, err));
    if (list->n > 0) {
        memcpy(items, list->items, list->n * sizeof(*list->items));
    }
    list->items = items;
    list->items[list->n++] = text;
    return PLIM_OK;
}

enum plim_status plim_option_set(const struct plim_option *option, const char *text,
                                 const char *origin, struct plim_arena *arena, void *values,
                                 struct plim_err *err)
{
    void *field = (char *)values + option->offset;
    double real = 0.0;
    switch (option->kind) {
    case PLIM_OPT_FLAG:
        return set_flag(text, origin, field, err);
    case PLIM_OPT_TEXT:
        *(const char **)field = text;
        return PLIM_OK;
    case PLIM_OPT_CHOICE:
        return set_choice(option, text, origin, field, err);
    case PLIM_OPT_SIZE:
        return set_size(text, origin, field, err);
    case PLIM_OPT_COUNT:
        return set_count(text, origin, field, err);
    case PLIM_OPT_DURATION:
        return set_duration(text, origin, field, err);
    case PLIM_OPT_REAL:
        PLIM_TRY(set_real(text, origin, &real, err));
        *(struct plim_opt_real *)field = (struct plim_opt_real){real, true};
        return PLIM_OK;
    case PLIM_OPT_LIST:
        return list_add(field, text, arena, err);
    }
    return plim__fail(err, PLIM_E_INTERNAL, "option --%s has no kind", option->name);
}

/* ---- the command line ---- */

static enum plim_status unknown_option(const struct parser *p, const char *shown, const char *word,
                                       struct plim_err *err)
{
    enum plim_status st = plim__fail(err, PLIM_E_USAGE, "unknown option %s", shown);
    const char *near = word ? plim_option_nearest(p->verb, word) : NULL;
    if (near != NULL) {
        plim__err_hint(err, "did you mean --%s? 'plimsoll %s --help' lists all options", near,
                       p->verb->name);
    } else {
        plim__err_hint(err, "'plimsoll %s --help' lists all options", p->verb->name);
    }
    return st;
}

/* The value of an option that needs one: what is attached to it, else the next word. */
static enum plim_status take_value(struct parser *p, const struct plim_option *option,
                                   const char *attached, struct plim_err *err)
{
    const char *text = attached;
    if (text == NULL && option->kind == PLIM_OPT_FLAG) {
        text = "yes";
    } else if (text == NULL) {
        if (p->next >= p->argc) {
            enum plim_status st = plim__fail(err, PLIM_E_USAGE, "needs a value: %s", option->arg);
            plim__err_where(err, "--%s", option->name);
            return st;
        }
        text = p->argv[p->next++];
    }
    return plim_vec_push(&p->typed, err, (struct typed){option, text});
}

static enum plim_status long_option(struct parser *p, const char *word, struct plim_err *err)
{
    size_t n = strcspn(word, "=");
    const struct plim_option *option = plim_option_find(p->verb, word, n);
    if (option == NULL) {
        char shown[80];
        char bare[64];
        (void)snprintf(shown, sizeof(shown), "--%.*s", (int)(n < 60 ? n : 60), word);
        (void)snprintf(bare, sizeof(bare), "%.*s", (int)(n < 60 ? n : 60), word);
        return unknown_option(p, shown, bare, err);
    }
    return take_value(p, option, word[n] == '=' ? word + n + 1 : NULL, err);
}

static const struct plim_option *find_letter(const struct plim_verb *verb, char letter)
{
    for (size_t i = 0; i < verb->n_options; i++) {
        if (verb->options[i].letter == letter) {
            return &verb->options[i];
        }
    }
    return NULL;
}

/* "-o", "-oFILE", "-hf" ... */
static enum plim_status letters(struct parser *p, const char *word, struct plim_err *err)
{
    for (; *word != '\0'; word++) {
        const struct plim_option *option = find_letter(p->verb, *word);
        if (option == NULL) {
            char shown[3] = {'-', *word, '\0'};
            return unknown_option(p, shown, NULL, err);
        }
        if (option->kind != PLIM_OPT_FLAG) {
            return take_value(p, option, word[1] != '\0' ? word + 1 : NULL, err);
        }
        PLIM_TRY(take_value(p, option, NULL, err));
    }
    return PLIM_OK;
}

static enum plim_status split_words(struct parser *p, struct plim_err *err)
{
    bool options = true;
    while (p->next < p->argc) {
        const char *word = p->argv[p->next++];
        if (!options || word[0] != '-' || word[1] == '\0') {
            p->args[p->n_args++] = word;
            options = options && (p->verb->flags & PLIM_VERB_COMMAND) == 0;
        } else if (strcmp(word, "--") == 0) {
            options = false;
        } else if (word[1] == '-') {
            PLIM_TRY(long_option(p, word + 2, err));
        } else {
            PLIM_TRY(letters(p, word + 1, err));
        }
    }
    return PLIM_OK;
}

/* ---- all sources together ---- */

static enum plim_status from_words(const struct parser *p, const struct plim_option *option,
                                   bool *found, struct plim_err *err)
{
    char origin[80];
    (void)snprintf(origin, sizeof(origin), "--%s", option->name);
    *found = false;
    plim_vec_foreach (t, &p->typed) {
        if (t->option == option) {
            PLIM_TRY(plim_option_set(option, t->text, origin, p->arena, p->values, err));
            *found = true;
        }
    }
    return PLIM_OK;
}

static enum plim_status from_surroundings(const struct parser *p, const struct plim_option *option,
                                          bool *found, struct plim_err *err)
{
    char origin[96];
    const char *text = p->around->getenv(plim_option_env(option, origin));
    const struct plim_config *config = p->around->config;
    *found = true;
    if (text != NULL && (text[0] != '\0' || option->kind == PLIM_OPT_FLAG) &&
        !meant_for_others(option, text)) {
        return plim_option_set(option, text, origin, p->arena, p->values, err);
    }
    const struct plim_config_entry *entry =
        config ? plim_config_find(config, p->verb, option) : NULL;
    if (entry != NULL && (entry->section[0] != '\0' || !meant_for_others(option, entry->value))) {
        (void)snprintf(origin, sizeof(origin), "%.70s:%d", config->path, entry->line);
        return plim_option_set(option, entry->value, origin, p->arena, p->values, err);
    }
    *found = false;
    return PLIM_OK;
}

static enum plim_status fill_option(const struct parser *p, const struct plim_option *option,
                                    struct plim_err *err)
{
    bool found = false;
    PLIM_TRY(from_words(p, option, &found, err));
    if (!found && plim_option_is_ambient(option)) {
        PLIM_TRY(from_surroundings(p, option, &found, err));
    }
    if (!found && option->initial != NULL) {
        return plim_option_set(option, option->initial, "default", p->arena, p->values, err);
    }
    return PLIM_OK;
}

static enum plim_status check_arg_count(const struct parser *p, struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    if (p->n_args < p->verb->min_args) {
        st = plim__fail(err, PLIM_E_USAGE, "too few arguments: needs %s", p->verb->args);
    } else if (p->n_args > p->verb->max_args) {
        st = plim__fail(err, PLIM_E_USAGE, "unexpected argument '%s'", p->args[p->verb->max_args]);
    } else {
        return PLIM_OK;
    }
    plim__err_where(err, "%s", p->verb->name);
    plim__err_hint(err, "usage: plimsoll %s [options]%s%s", p->verb->name,
                   p->verb->args[0] ? " " : "", p->verb->args);
    return st;
}

static enum plim_status parse(struct parser *p, struct plim_err *err)
{
    PLIM_TRY(split_words(p, err));
    for (size_t i = 0; i < p->verb->n_options; i++) {
        PLIM_TRY(fill_option(p, &p->verb->options[i], err));
    }
    const struct plim_option *help = plim_option_find(p->verb, "help", 4);
    if (help != NULL && *((const bool *)p->values + help->offset)) {
        return PLIM_OK;
    }
    return check_arg_count(p, err);
}

enum plim_status plim_options_parse(const struct plim_verb *verb, int argc, char *const argv[],
                                    const struct plim_surroundings *around,
                                    struct plim_options *out, struct plim_err *err)
{
    struct parser p = {
        .verb = verb, .argc = argc, .argv = argv, .around = around, .arena = out->arena};
    void *room = NULL;
    PLIM_TRY(plim_arena_array(out->arena, (size_t)argc + 1, sizeof(*p.args), &room, err));
    p.args = room;
    PLIM_TRY(plim_arena_alloc(out->arena, verb->options_size, &p.values, err));
    enum plim_status st = parse(&p, err);
    plim_vec_fini(&p.typed);
    if (st == PLIM_OK) {
        out->values = p.values;
        out->args = p.args;
        out->n_args = p.n_args;
    }
    return st;
}
