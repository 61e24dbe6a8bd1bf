/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The program: find the verb, read its options, run it, send its answer, say what failed.
 *
 * This is the only place that prints. Exit codes: the verb's own (0, 1 or 2), or that of the error's
 * status (status.h). SIGPIPE keeps its default, so that `plimsoll ... | head` ends quietly; where the
 * parent has it ignored, a write to a closed pipe is taken as "the reader has enough" and exits 0.
 */

#include "base/file.h"
#include "cli/help.h"
#include "cli/parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ARENA_BUDGET (UINT64_C(8) << 30) /* bytes; verbs set tighter ones for what they read */
#define NO_TERMINAL  80                  /* columns of what goes to a file or a pipe */

static const char *environment(const char *name)
{
    return getenv(name); // NOLINT(concurrency-mt-unsafe): before any thread starts
}

static int report(const struct plim_err *err)
{
    struct plim_err bare = *err;
    char text[512];
    bare.hint[0] = '\0';
    (void)plim_err_format(&bare, text, sizeof(text));
    (void)fprintf(stderr, "plimsoll: %s\n", text);
    if (err->hint[0] != '\0') {
        (void)fprintf(stderr, "plimsoll: hint: %s\n", err->hint);
    }
    return plim_status_exit(err->status);
}

/* The value of a TEXT or FLAG option that not every verb has. */
static const char *text_value(const struct plim_verb *verb, const void *values, const char *name)
{
    const struct plim_option *option = plim_option_find(verb, name, strlen(name));
    const char *text = NULL;
    if (option != NULL) {
        memcpy(&text, (const char *)values + option->offset, sizeof(text));
    }
    return text;
}

static bool flag_value(const struct plim_verb *verb, const void *values, const char *name)
{
    const struct plim_option *option = plim_option_find(verb, name, strlen(name));
    return option != NULL && *((const bool *)values + option->offset);
}

static bool wants_color(const struct plim_verb *verb, const void *values)
{
    const char *no_color = environment("NO_COLOR");
    const char *term = environment("TERM");
    const char *output = text_value(verb, values, "output");
    return (no_color == NULL || no_color[0] == '\0') && !flag_value(verb, values, "no-color") &&
           (output == NULL || strcmp(output, "-") == 0) && isatty(STDOUT_FILENO) &&
           (term == NULL || strcmp(term, "dumb") != 0);
}

static unsigned terminal_width(void)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) {
        return size.ws_col;
    }
    return NO_TERMINAL;
}

static enum plim_status send_answer(const struct plim_cli *cli, const void *values,
                                    struct plim_err *err)
{
    const char *path = text_value(cli->verb, values, "output");
    PLIM_TRY(plim_buf_status(&cli->out, err));
    if (cli->sent || (cli->out.n == 0 && path == NULL)) {
        return PLIM_OK;
    }
    return plim_file_replace(path ? path : "-", plim_buf_str(&cli->out), err);
}

/* A reader that went away (`| head`) has seen enough. */
static enum plim_status unless_pipe_broke(enum plim_status st, const struct plim_err *err)
{
    return st != PLIM_OK && err->os_errno == EPIPE ? PLIM_OK : st;
}

static enum plim_status run_verb(struct plim_cli *cli, int argc, char **argv, struct plim_err *err)
{
    struct plim_config config;
    struct plim_options got = {.arena = &cli->arena};
    PLIM_TRY(plim_config_load(environment, &cli->arena, &config, err));
    struct plim_surroundings around = {environment, &config};
    enum plim_status st = plim_options_parse(cli->verb, argc, argv, &around, &got, err);
    plim_config_fini(&config);
    PLIM_TRY(st);
    cli->width = terminal_width();
    if (flag_value(cli->verb, got.values, "help")) {
        plim_help_verb(&cli->out, cli->verb, cli->width);
    } else {
        cli->args = got.args;
        cli->n_args = got.n_args;
        cli->color = wants_color(cli->verb, got.values);
        PLIM_TRY(unless_pipe_broke(cli->verb->run(cli, got.values, err), err));
    }
    return unless_pipe_broke(send_answer(cli, got.values, err), err);
}

static enum plim_status find_verb(const char *word, const struct plim_verb **out,
                                  struct plim_err *err)
{
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        word = "version";
    } else if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        word = "help";
    }
    *out = plim_verb_find(word);
    if (*out != NULL) {
        return PLIM_OK;
    }
    const char *near = plim_verb_nearest(word);
    enum plim_status st = plim__fail(err, PLIM_E_USAGE, "unknown %s '%.80s'",
                                     word[0] == '-' ? "option" : "verb", word);
    if (near != NULL) {
        plim__err_hint(err, "did you mean '%s'? 'plimsoll help' lists the verbs", near);
    } else {
        plim__err_hint(err, "'plimsoll help' lists the verbs");
    }
    return st;
}

static int no_verb(void)
{
    struct plim_buf out = {0};
    plim_help_program(&out, NO_TERMINAL);
    (void)fwrite(out.p ? out.p : "", 1, out.n, stderr);
    plim_buf_fini(&out);
    return plim_status_exit(PLIM_E_USAGE);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        return no_verb();
    }
    struct plim_err err = {0};
    struct plim_cli cli = {.width = NO_TERMINAL};
    plim_arena_init(&cli.arena, ARENA_BUDGET);
    enum plim_status st = find_verb(argv[1], &cli.verb, &err);
    if (st == PLIM_OK) {
        st = run_verb(&cli, argc - 2, argv + 2, &err);
    }
    int code = st == PLIM_OK ? cli.exit_code : report(&err);
    plim_buf_fini(&cli.out);
    plim_arena_fini(&cli.arena);
    return code;
}
