/* SPDX-License-Identifier: Apache-2.0 */

/* Help texts from the one table of verbs and options. See help.h. */

#include "cli/help.h"

#include "base/num.h"
#include "cli/parse.h"
#include "cli/version.h"
#include "report/text.h"

#include <stdio.h>

#define LEFT_MAX   28 /* columns of the option column; longer ones get a line of their own */
#define TEXT_MAX   96 /* columns of a help line on a terminal that has more */
#define NARROW     60 /* columns; below it a help text stands under its option */
#define NARROW_PAD 8

static const char *kind_text(enum plim_option_kind kind)
{
    switch (kind) {
    case PLIM_OPT_FLAG:
        return "flag";
    case PLIM_OPT_TEXT:
        return "text";
    case PLIM_OPT_CHOICE:
        return "choice";
    case PLIM_OPT_SIZE:
        return "size";
    case PLIM_OPT_COUNT:
        return "count";
    case PLIM_OPT_DURATION:
        return "duration";
    case PLIM_OPT_REAL:
        return "real";
    case PLIM_OPT_LIST:
        return "list";
    }
    return "";
}

static void synopsis(struct plim_buf *out, const struct plim_verb *verb)
{
    plim_buf_printf(out, "plimsoll %s [options]%s%s", verb->name, verb->args[0] ? " " : "",
                    verb->args);
}

/* "  -f, --format text|json", broken behind a | where the line is full. The column behind it. */
static size_t option_head(struct plim_buf *out, const struct plim_option *option, size_t width)
{
    size_t start = out->n;
    const char *arg = option->arg ? option->arg : "";
    if (option->letter != 0) {
        plim_buf_printf(out, "  -%c, --%s", option->letter, option->name);
    } else {
        plim_buf_printf(out, "      --%s", option->name);
    }
    size_t at = out->n - start;
    size_t indent = plim_min_u64(at + 1, LEFT_MAX);
    plim_buf_text(out, *arg ? " " : "");
    at += *arg ? 1 : 0;
    while (*arg) {
        size_t n = strcspn(arg, "|");
        n += arg[n] == '|';
        if (at + n > width) {
            plim_buf_char(out, '\n');
            plim_buf_repeat(out, " ", indent);
            at = indent;
        }
        plim_buf_add(out, (struct plim_str){arg, n});
        at += n;
        arg += n;
    }
    return at;
}

static void option_line(struct plim_buf *out, const struct plim_option *option,
                        const struct plim_text_style *style)
{
    size_t left = style->width < NARROW ? NARROW_PAD : LEFT_MAX + 2;
    char help[512], blanks[LEFT_MAX + 3];
    struct plim_buf text = {0};
    size_t at = option_head(out, option, style->width);
    if (at + 2 > left) {
        plim_buf_char(out, '\n');
        at = 0;
    }
    (void)snprintf(help, sizeof(help), "%s%s%s%s", option->help,
                   option->initial ? " (default " : "", option->initial ? option->initial : "",
                   option->initial ? ")" : "");
    (void)snprintf(blanks, sizeof(blanks), "%*s", (int)left, "");
    plim_text_wrap(&text, blanks, help, style);
    plim_buf_add(out, plim_str_skip(plim_buf_str(&text), at)); /* behind the head */
    plim_buf_fini(&text);
}

static struct plim_text_style style_of(unsigned columns)
{
    return (struct plim_text_style){.unicode = true,
                                    .width = (unsigned)plim_min_u64(columns, TEXT_MAX)};
}

void plim_help_verb(struct plim_buf *out, const struct plim_verb *verb, unsigned columns)
{
    struct plim_text_style style = style_of(columns);
    char about[256];
    bool asks = verb->about[strlen(verb->about) - 1] == '?';
    (void)snprintf(about, sizeof(about), "plimsoll %s: %s%s", verb->name, verb->about,
                   asks ? "" : ".");
    plim_buf_text(out, "usage: ");
    synopsis(out, verb);
    plim_buf_text(out, "\n\n");
    plim_text_wrap(out, "", about, &style);
    plim_buf_text(out, "\nOptions:\n");
    for (size_t i = 0; i < verb->n_options; i++) {
        option_line(out, &verb->options[i], &style);
    }
    plim_buf_char(out, '\n');
    plim_text_wrap(
        out, "",
        "Options can also be set as PLIMSOLL_NAME in the environment or in the config file.",
        &style);
    plim_buf_printf(out, "More: man plimsoll-%s\n", verb->name);
}

void plim_help_program(struct plim_buf *out, unsigned columns)
{
    struct plim_text_style style = style_of(columns);
    size_t n = 0;
    const struct plim_verb *verbs = plim_verbs(&n);
    plim_buf_text(out, "usage: plimsoll VERB [options] [arguments]\n\n"
                       "Why GPU memory ran out, what would have saved it, and how to stop it.\n\n"
                       "Verbs:\n");
    for (size_t i = 0; i < n; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "  %-12s", verbs[i].name);
        plim_text_wrap(out, name, verbs[i].about, &style);
    }
    plim_buf_char(out, '\n');
    plim_text_wrap(out, "",
                   "'plimsoll VERB --help' lists a verb's options; 'plimsoll --version' says what "
                   "this is.",
                   &style);
    plim_text_wrap(
        out, "",
        "Exit status: 0 an answer was given, 1 the answer is bad (--check), 2 will not fit "
        "(plan), 64 wrong use, 65 bad data, 66 no input, 71 system, 73 and 74 output.",
        &style);
}

static void option_json(struct plim_jsonw *w, const struct plim_option *option)
{
    char env[PLIM_ENV_NAME];
    char letter[2] = {option->letter, '\0'};
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "name", option->name);
    plim_jsonw_kv_text(w, "letter", option->letter ? letter : NULL);
    plim_jsonw_kv_text(w, "kind", kind_text(option->kind));
    plim_jsonw_kv_text(w, "argument", option->arg);
    plim_jsonw_kv_text(w, "default", option->initial);
    plim_jsonw_kv_text(w, "environment",
                       plim_option_is_ambient(option) ? plim_option_env(option, env) : NULL);
    plim_jsonw_kv_text(w, "help", option->help);
    plim_jsonw_end(w);
}

void plim_help_json(struct plim_buf *out)
{
    size_t n = 0;
    const struct plim_verb *verbs = plim_verbs(&n);
    struct plim_jsonw w;
    plim_jsonw_init(&w, out, false);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.help/1");
    plim_jsonw_kv_text(&w, "version", PLIM_VERSION);
    plim_jsonw_key(&w, "verbs");
    plim_jsonw_array(&w);
    for (size_t i = 0; i < n; i++) {
        plim_jsonw_object(&w);
        plim_jsonw_kv_text(&w, "name", verbs[i].name);
        plim_jsonw_kv_text(&w, "arguments", verbs[i].args);
        plim_jsonw_kv_u64(&w, "min_arguments", verbs[i].min_args);
        plim_jsonw_kv_u64(&w, "max_arguments", verbs[i].max_args);
        plim_jsonw_kv_text(&w, "about", verbs[i].about);
        plim_jsonw_key(&w, "options");
        plim_jsonw_array(&w);
        for (size_t k = 0; k < verbs[i].n_options; k++) {
            option_json(&w, &verbs[i].options[k]);
        }
        plim_jsonw_end(&w);
        plim_jsonw_end(&w);
    }
    plim_jsonw_end(&w);
    plim_jsonw_end(&w);
}

/* scdoc gives meaning to these; a backslash takes it away. */
static void scdoc_text(struct plim_buf *out, const char *z)
{
    for (; *z != '\0'; z++) {
        if (strchr("\\*_<>[]#|~.", *z) != NULL) {
            plim_buf_char(out, '\\');
        }
        plim_buf_char(out, *z);
    }
}

static void scdoc_option(struct plim_buf *out, const struct plim_option *option)
{
    char env[PLIM_ENV_NAME];
    if (option->letter != 0) {
        plim_buf_printf(out, "*-%c*, ", option->letter);
    }
    plim_buf_printf(out, "*--%s*", option->name);
    if (option->arg != NULL) {
        plim_buf_char(out, ' ');
        scdoc_text(out, option->arg);
    }
    plim_buf_text(out, "\n\t");
    scdoc_text(out, option->help);
    if (option->initial != NULL) {
        plim_buf_text(out, " (default ");
        scdoc_text(out, option->initial);
        plim_buf_char(out, ')');
    }
    if (plim_option_is_ambient(option)) {
        plim_buf_text(out, "; also *");
        scdoc_text(out, plim_option_env(option, env));
        plim_buf_char(out, '*');
    }
    plim_buf_text(out, "\n\n");
}

void plim_help_scdoc(struct plim_buf *out, const struct plim_verb *verb)
{
    size_t n = 0;
    const struct plim_verb *verbs = plim_verbs(&n);
    for (size_t i = 0; verb == NULL && i < n; i++) {
        plim_buf_printf(out, "*%s*\n\t", verbs[i].name);
        scdoc_text(out, verbs[i].about);
        plim_buf_printf(out, "; see *plimsoll-%s*(1)\n\n", verbs[i].name);
    }
    for (size_t i = 0; verb != NULL && i < verb->n_options; i++) {
        scdoc_option(out, &verb->options[i]);
    }
}
