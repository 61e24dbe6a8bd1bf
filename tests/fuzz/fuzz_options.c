/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: the option parser. The input is lines: the first is the verb, the others are one word of the
 * command line each. Whatever is typed, the parser answers with values or with an error that says something.
 */

#include "cli/parse.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *no_environment(const char *name)
{
    (void)name;
    return NULL;
}

/* Split `text` at newlines in place; the number of words. */
static int split(char *text, char *words[MAX_WORDS])
{
    int n = 0;
    for (char *line = text; line != NULL && n < MAX_WORDS; n++) {
        words[n] = line;
        line = strchr(line, '\n');
        if (line != NULL) {
            *line++ = '\0';
        }
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    char *words[MAX_WORDS];
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    int n = split(text, words);
    const struct plim_verb *verb = plim_verb_find(words[0]);
    if (verb == NULL) {
        (void)plim_verb_nearest(words[0]);
        verb = plim_verb_find("help");
    }
    struct plim_arena arena;
    plim_arena_init(&arena, UINT64_C(1) << 20);
    struct plim_surroundings around = {no_environment, NULL};
    struct plim_options got = {.arena = &arena};
    struct plim_err err;
    enum plim_status st = plim_options_parse(verb, n - 1, words + 1, &around, &got, &err);
    if (st != PLIM_OK && err.message[0] == '\0') {
        abort();
    }
    plim_arena_fini(&arena);
    free(text);
    return 0;
}
