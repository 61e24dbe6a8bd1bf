/* SPDX-License-Identifier: Apache-2.0 */
/* Option parser and config file: every kind, every form of writing, every source, every complaint. */

#include "cli/parse.h"
#include "fail_alloc.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct opts {
    bool flag;
    const char *text;
    const char *choice;
    struct plim_opt_u64 size, count, duration;
    struct plim_opt_real real;
    struct plim_opt_list list;
    bool help;
};

#define ROW(name, letter, kind, arg, initial)                                                      \
    {                                                                                              \
        #name, letter, PLIM_OPT_##kind, arg, initial, "for tests", offsetof(struct opts, name)     \
    }

static const struct plim_option rows[] = {
    ROW(flag, 'x', FLAG, NULL, NULL),
    ROW(text, 't', TEXT, "WORD", NULL),
    ROW(choice, 'c', CHOICE, "red|green", "red"),
    ROW(size, 's', SIZE, "SIZE", NULL),
    ROW(count, 'n', COUNT, "N", "7"),
    ROW(duration, 'd', DURATION, "TIME", NULL),
    ROW(real, 'r', REAL, "X", NULL),
    ROW(list, 'l', LIST, "WORD", NULL),
    ROW(help, 'h', FLAG, NULL, NULL),
};

static const struct plim_verb verb = {
    .name = "test",
    .args = "[A B]",
    .max_args = 2,
    .about = "for tests",
    .options = rows,
    .n_options = PLIM_COUNT_OF(rows),
    .options_size = sizeof(struct opts),
};

static const char *nothing(const char *name)
{
    (void)name;
    return NULL;
}

static const char *some_environment(const char *name)
{
    return strcmp(name, "PLIMSOLL_SIZE") == 0     ? "2GiB"
           : strcmp(name, "PLIMSOLL_FLAG") == 0   ? "yes"
           : strcmp(name, "PLIMSOLL_CHOICE") == 0 ? "green"
           : strcmp(name, "PLIMSOLL_TEXT") == 0   ? ""
                                                  : NULL;
}

struct fixture {
    struct plim_arena arena;
    struct plim_options got;
    struct plim_err err;
    const struct opts *opts;
    enum plim_status st;
};

/* Parse `line`, split at blanks, into f; the words live in the arena. */
static void parse_with(struct fixture *f, const struct plim_verb *v, const char *line,
                       const struct plim_surroundings *around)
{
    char *words[32];
    int n = 0;
    struct plim_str copy;
    plim_arena_init(&f->arena, 1 << 20);
    assert_ok(plim_arena_str(&f->arena, plim_str_from(line), &copy, NULL));
    for (char *w = strtok((char *)(uintptr_t)copy.p, " "); w; w = strtok(NULL, " ")) {
        words[n++] = w;
    }
    f->got = (struct plim_options){.arena = &f->arena};
    f->st = plim_options_parse(v, n, words, around, &f->got, &f->err);
    f->opts = f->got.values;
}

static void parse(struct fixture *f, const char *line)
{
    struct plim_surroundings around = {nothing, NULL};
    parse_with(f, &verb, line, &around);
}

static void without_words_the_defaults_hold_and_the_rest_is_not_given(void **state)
{
    (void)state;
    struct fixture f;
    parse(&f, "");
    assert_ok(f.st);
    assert_false(f.opts->flag);
    assert_null(f.opts->text);
    assert_string_equal(f.opts->choice, "red");
    assert_false(f.opts->size.given);
    assert_true(f.opts->count.given);
    assert_int_equal(f.opts->count.value, 7);
    assert_false(f.opts->real.given);
    assert_int_equal(f.opts->list.n, 0);
    assert_int_equal(f.got.n_args, 0);
    plim_arena_fini(&f.arena);
}

static void every_kind_is_converted(void **state)
{
    (void)state;
    struct fixture f;
    parse(&f, "--flag --text w --choice green --size 24GiB --count 18446744073709551615 "
              "--duration 1.5m --real -2.5e3 --list a --list b");
    assert_ok(f.st);
    assert_true(f.opts->flag);
    assert_string_equal(f.opts->text, "w");
    assert_string_equal(f.opts->choice, "green");
    assert_true(f.opts->size.value == UINT64_C(24) << 30);
    assert_true(f.opts->count.value == UINT64_MAX);
    assert_true(f.opts->duration.value == UINT64_C(90000000000));
    assert_true(f.opts->real.value == -2500.0);
    assert_int_equal(f.opts->list.n, 2);
    assert_string_equal(f.opts->list.items[0], "a");
    assert_string_equal(f.opts->list.items[1], "b");
    plim_arena_fini(&f.arena);
}

static void every_form_of_writing_is_understood(void **state)
{
    (void)state;
    struct fixture f;
    parse(&f, "--text=a=b -cgreen -xn 3 one -s 1k - ");
    assert_ok(f.st);
    assert_string_equal(f.opts->text, "a=b");
    assert_string_equal(f.opts->choice, "green");
    assert_true(f.opts->flag);
    assert_int_equal(f.opts->count.value, 3);
    assert_int_equal(f.opts->size.value, 1024);
    assert_int_equal(f.got.n_args, 2);
    assert_string_equal(f.got.args[0], "one");
    assert_string_equal(f.got.args[1], "-");
    plim_arena_fini(&f.arena);
}

static void two_dashes_end_the_options(void **state)
{
    (void)state;
    struct fixture f;
    parse(&f, "-x -- --text -n");
    assert_ok(f.st);
    assert_true(f.opts->flag);
    assert_int_equal(f.got.n_args, 2);
    assert_string_equal(f.got.args[0], "--text");
    plim_arena_fini(&f.arena);
}

static void a_command_s_own_options_are_left_alone(void **state)
{
    (void)state;
    struct plim_verb command = verb;
    struct plim_surroundings around = {nothing, NULL};
    struct fixture f;
    command.flags = PLIM_VERB_COMMAND;
    command.max_args = PLIM_VERB_ANY_ARGS;
    parse_with(&f, &command, "-n 1 python --text -x", &around);
    assert_ok(f.st);
    assert_int_equal(f.got.n_args, 3);
    assert_string_equal(f.got.args[1], "--text");
    assert_false(f.opts->flag);
    plim_arena_fini(&f.arena);
    parse_with(&f, &command, "-n 1 -- python -x", &around);
    assert_ok(f.st);
    assert_int_equal(f.got.n_args, 2);
    assert_string_equal(f.got.args[1], "-x");
    plim_arena_fini(&f.arena);
}

static void the_last_one_counts(void **state)
{
    (void)state;
    struct fixture f;
    parse(&f, "--count 1 --flag --count=2 --flag=no");
    assert_ok(f.st);
    assert_int_equal(f.opts->count.value, 2);
    assert_false(f.opts->flag);
    plim_arena_fini(&f.arena);
}

static const struct {
    const char *line;
    const char *where;   /* NULL: not compared */
    const char *message; /* part of it */
    const char *hint;    /* part of it, or NULL */
} complaints[] = {
    {"--tex w", NULL, "unknown option --tex", "--text"},
    {"--colour=x", NULL, "unknown option --colour", "--help"},
    {"--choise red", NULL, "unknown option --choise", "--choice"},
    {"-q", NULL, "unknown option -q", "--help"},
    {"-xq", NULL, "unknown option -q", "--help"},
    {"--text", "--text", "needs a value", NULL},
    {"-x -t", "--text", "needs a value", NULL},
    {"--choice blue", "--choice", "'blue' is not one of red|green", NULL},
    {"--choice=", "--choice", "is not one of", NULL},
    {"--choice red|green", "--choice", "is not one of", NULL},
    {"--size many", "--size", "'many' is not a size", NULL},
    {"--size 99999999999GiB", "--size", "is not a size", NULL},
    {"--count -1", "--count", "'-1' is not a whole number", NULL},
    {"--count 1.5", "--count", "whole number", NULL},
    {"--count 18446744073709551616", "--count", "whole number", NULL},
    {"--count=", "--count", "whole number", NULL},
    {"--duration 5parsecs", "--duration", "duration", NULL},
    {"--duration -5s", "--duration", "duration", NULL},
    {"--duration 99999999999d", "--duration", "duration", NULL},
    {"--real nan", "--real", "number", NULL},
    {"--real 1e999", "--real", "number", NULL},
    {"--real 1x", "--real", "number", NULL},
    {"--flag=maybe", "--flag", "yes or no", NULL},
    {"a b c", "test", "unexpected argument 'c'", "usage:"},
    {"--", NULL, NULL, NULL}, /* nothing wrong with this one */
};

static void every_mistake_gets_a_useful_complaint(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(complaints); i++) {
        struct fixture f;
        parse(&f, complaints[i].line);
        if (complaints[i].message == NULL) {
            assert_ok(f.st);
        } else if (f.st != PLIM_E_USAGE || !strstr(f.err.message, complaints[i].message) ||
                   (complaints[i].where && strcmp(f.err.where, complaints[i].where) != 0) ||
                   (complaints[i].hint && !strstr(f.err.hint, complaints[i].hint))) {
            fail_msg("'%s': %s at '%s': %s (%s)", complaints[i].line, plim_status_name(f.st),
                     f.err.where, f.err.message, f.err.hint);
        }
        plim_arena_fini(&f.arena);
    }
}

static void missing_arguments_are_no_mistake_with_help(void **state)
{
    (void)state;
    struct plim_verb strict = verb;
    struct plim_surroundings around = {nothing, NULL};
    struct fixture f;
    strict.min_args = 1;
    parse_with(&f, &strict, "", &around);
    assert_int_equal(f.st, PLIM_E_USAGE);
    plim_arena_fini(&f.arena);
    parse_with(&f, &strict, "--help", &around);
    assert_ok(f.st);
    assert_true(f.opts->help);
    plim_arena_fini(&f.arena);
}

static void the_environment_fills_what_is_not_typed(void **state)
{
    (void)state;
    struct plim_surroundings around = {some_environment, NULL};
    struct fixture f;
    parse_with(&f, &verb, "--choice red", &around);
    assert_ok(f.st);
    assert_true(f.opts->size.value == UINT64_C(2) << 30);
    assert_true(f.opts->flag);
    assert_string_equal(f.opts->choice, "red");
    assert_null(f.opts->text); /* set but empty counts as not set */
    plim_arena_fini(&f.arena);
}

static void the_config_file_comes_after_the_environment(void **state)
{
    (void)state;
    struct plim_config_entry entries[] = {
        {"", "size", "1GiB", 1},
        {"", "text", "general", 2},
        {"test", "text", "own", 4},
        {"other", "count", "9", 6},
    };
    struct plim_config config = {.path = "config"};
    config.entries.items = entries;
    config.entries.n = PLIM_COUNT_OF(entries);
    struct plim_surroundings around = {some_environment, &config};
    struct fixture f;
    parse_with(&f, &verb, "", &around);
    assert_ok(f.st);
    assert_true(f.opts->size.value == UINT64_C(2) << 30);
    assert_string_equal(f.opts->text, "own");
    assert_int_equal(f.opts->count.value, 7);
    plim_arena_fini(&f.arena);
    entries[2].value = "again";
    entries[0] = (struct plim_config_entry){"test", "count", "many", 11};
    parse_with(&f, &verb, "", &around);
    assert_int_equal(f.st, PLIM_E_USAGE);
    assert_string_equal(f.err.where, "config:11");
    plim_arena_fini(&f.arena);
}

static void environment_names_are_made_from_option_names(void **state)
{
    (void)state;
    struct plim_option option = {.name = "device-memory"};
    char buf[PLIM_ENV_NAME];
    assert_string_equal(plim_option_env(&option, buf), "PLIMSOLL_DEVICE_MEMORY");
}

static char config_file[] = "/tmp/plimsoll-test-parse-XXXXXX";

static const char *names_config(const char *name)
{
    return strcmp(name, "PLIMSOLL_CONFIG") == 0 ? config_file : NULL;
}

static enum plim_status load_config(const char *text, struct plim_arena *arena,
                                    struct plim_config *config, struct plim_err *err)
{
    FILE *file = fopen(config_file, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    return plim_config_load(names_config, arena, config, err);
}

static int make_config_file(void **state)
{
    (void)state;
    int fd = mkstemp(config_file);
    return fd < 0 || close(fd) != 0;
}

static int remove_config_file(void **state)
{
    (void)state;
    return unlink(config_file);
}

static void config_entries_know_their_section_and_line(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_config config;
    plim_arena_init(&arena, 0);
    assert_ok(load_config("; mine\nformat = json\n\n[version]\nformat=text ; said\n", &arena,
                          &config, NULL));
    assert_int_equal(config.entries.n, 2);
    assert_string_equal(config.entries.items[0].section, "");
    assert_string_equal(config.entries.items[0].value, "json");
    assert_int_equal(config.entries.items[0].line, 2);
    assert_string_equal(config.entries.items[1].section, "version");
    assert_string_equal(config.entries.items[1].value, "text");
    assert_int_equal(config.entries.items[1].line, 5);
    plim_config_fini(&config);
    plim_arena_fini(&arena);
}

static const struct {
    const char *text;
    const char *line; /* end of `where` */
} bad_configs[] = {
    {"formt = json\n", ":1"},
    {"format = json\n[versoin]\nformat = json\n", ":3"},
    {"[version]\nquantity = 3\n", ":2"},
    {"format = json\nnonsense\n", ":2"},
    {"[version\nformat = json\n", ":1"},
};

static void a_bad_config_file_is_refused_with_the_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT_OF(bad_configs); i++) {
        struct plim_arena arena;
        struct plim_config config;
        struct plim_err err;
        plim_arena_init(&arena, 0);
        assert_int_equal(load_config(bad_configs[i].text, &arena, &config, &err), PLIM_E_USAGE);
        size_t n = strlen(err.where), m = strlen(bad_configs[i].line);
        if (n < m || strcmp(err.where + n - m, bad_configs[i].line) != 0) {
            fail_msg("%zu: %s: %s", i, err.where, err.message);
        }
        plim_arena_fini(&arena);
    }
}

static enum plim_status parse_all(void *arg)
{
    (void)arg;
    char line[] = "--text=a|--list=b|--list=c|-x|one|two";
    char *words[8];
    int n = 0;
    for (char *w = strtok(line, "|"); w; w = strtok(NULL, "|")) {
        words[n++] = w;
    }
    struct plim_arena arena;
    struct plim_config config;
    plim_arena_init(&arena, 0);
    enum plim_status st = plim_config_load(names_config, &arena, &config, NULL);
    if (st == PLIM_OK) {
        struct plim_surroundings around = {nothing, &config};
        struct plim_options got = {.arena = &arena};
        st = plim_options_parse(&verb, n, words, &around, &got, NULL);
        plim_config_fini(&config);
    }
    plim_arena_fini(&arena);
    return st;
}

static void every_failed_allocation_is_reported_and_nothing_leaks(void **state)
{
    (void)state;
    struct plim_arena arena;
    struct plim_config config;
    plim_arena_init(&arena, 0);
    assert_ok(load_config("format = json\n", &arena, &config, NULL));
    plim_config_fini(&config);
    plim_arena_fini(&arena);
    assert_true(fail_alloc_sweep(parse_all, NULL, 100, false) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_words_the_defaults_hold_and_the_rest_is_not_given),
        cmocka_unit_test(every_kind_is_converted),
        cmocka_unit_test(every_form_of_writing_is_understood),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(a_command_s_own_options_are_left_alone),
        cmocka_unit_test(the_last_one_counts),
        cmocka_unit_test(every_mistake_gets_a_useful_complaint),
        cmocka_unit_test(missing_arguments_are_no_mistake_with_help),
        cmocka_unit_test(the_environment_fills_what_is_not_typed),
        cmocka_unit_test(the_config_file_comes_after_the_environment),
        cmocka_unit_test(environment_names_are_made_from_option_names),
        cmocka_unit_test(config_entries_know_their_section_and_line),
        cmocka_unit_test(a_bad_config_file_is_refused_with_the_line),
        cmocka_unit_test(every_failed_allocation_is_reported_and_nothing_leaks),
    };
    return cmocka_set_message_output(CM_OUTPUT_TAP),
           cmocka_run_group_tests_name("parse", tests, make_config_file, remove_config_file);
}
