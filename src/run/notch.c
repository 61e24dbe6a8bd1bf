/* SPDX-License-Identifier: Apache-2.0 */
/* Notches: see notch.h. */

#include "run/notch.h"

#include "base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum plim_status plim_notch_parse(struct plim_notches *notches, const char *text,
                                  struct plim_err *err)
{
    const char *equals = strchr(text, '=');
    size_t n = equals ? (size_t)(equals - text) : 0;
    struct plim_notch made = {0};
    char *end = NULL;
    if (notches->n == PLIM_NOTCHES) {
        return plim__fail(err, PLIM_E_RANGE, "at most %d notches", PLIM_NOTCHES);
    }
    if (n == 0 || n >= sizeof(made.flag) || (equals[1] != '-' && equals[1] != '/')) {
        plim__err_set(err, PLIM_E_USAGE, "no notch: \"%.80s\"", text);
        plim__err_hint(
            err, "FLAG=-STEP or FLAG=/FACTOR, then :LIMIT if there is one: max-model-len=/2:4096");
        return PLIM_E_USAGE;
    }
    memcpy(made.flag, text + strspn(text, "-"), n - strspn(text, "-"));
    made.divides = equals[1] == '/';
    made.step = strtod(equals + 2, &end);
    bool good = end != equals + 2 && isfinite(made.step) && made.step > (made.divides ? 1 : 0);
    if (good && *end == ':') {
        const char *from = end + 1;
        made.limit = strtod(from, &end);
        good = end != from && isfinite(made.limit) && made.limit >= 0;
    }
    if (!good || *end != '\0' || made.flag[0] == '\0') {
        return plim__fail(err, PLIM_E_USAGE, "no step or limit of a notch: \"%.80s\"", text);
    }
    notches->list[notches->n++] = made;
    return PLIM_OK;
}

/* Where the value of a flag is: the argument, and how many characters of it come before the value. */
static bool find(const char *flag, const char *const *command, size_t n, size_t *at, size_t *skip)
{
    size_t length = strlen(flag);
    for (size_t i = 0; i < n; i++) {
        const char *word = command[i];
        if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, flag, length) != 0) {
            continue;
        }
        if (word[2 + length] == '=') {
            *at = i;
            *skip = length + 3;
            return true;
        }
        if (word[2 + length] == '\0' && i + 1 < n) {
            *at = i + 1;
            *skip = 0;
            return true;
        }
    }
    return false;
}

static double stepped(const struct plim_notch *notch, double value, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        value = notch->divides ? value / notch->step : value - notch->step;
    }
    return value;
}

static bool is_whole(const char *text)
{
    return strspn(text, "0123456789") == strlen(text);
}

/* The value as the flag had it: whole, or with the digits that a step can change. */
static void write_value(const char *original, double value, char *out, size_t room)
{
    if (is_whole(original)) {
        (void)snprintf(out, room, "%.0f", floor(value + 1e-9));
    } else {
        (void)snprintf(out, room, "%.6g", value);
    }
}

/* The value after `times` steps; false: the flag is not there, has no number, or would be below the limit, or nothing. */
static bool value_after(const struct plim_notch *notch, const char *const *command, size_t n,
                        unsigned times, char *out, size_t room)
{
    size_t at, skip;
    char *end = NULL;
    if (!find(notch->flag, command, n, &at, &skip)) {
        return false;
    }
    const char *text = command[at] + skip;
    double value = strtod(text, &end);
    double least = fmax(notch->limit, is_whole(text) ? 1 : 1e-9);
    if (end == text || *end != '\0' || !isfinite(value) ||
        stepped(notch, value, times) < least - 1e-9) {
        return false;
    }
    write_value(text, stepped(notch, value, times), out, room);
    return true;
}

bool plim_notch_down(struct plim_notches *notches, const char *const *command, size_t n, char *what,
                     size_t room)
{
    char before[64], after[64];
    for (size_t tried = 0; tried < notches->n; tried++) {
        struct plim_notch *notch = &notches->list[notches->next];
        notches->next = (notches->next + 1) % notches->n;
        if (value_after(notch, command, n, notch->taken, before, sizeof(before)) &&
            value_after(notch, command, n, notch->taken + 1, after, sizeof(after)) &&
            strcmp(before, after) != 0) {
            notch->taken++;
            (void)snprintf(what, room, "%s %s -> %s", notch->flag, before, after);
            return true;
        }
    }
    return false;
}

bool plim_notch_up(struct plim_notches *notches)
{
    for (size_t tried = 0; tried < notches->n; tried++) {
        notches->next = (notches->next + notches->n - 1) % notches->n;
        if (notches->list[notches->next].taken > 0) {
            notches->list[notches->next].taken--;
            return true;
        }
    }
    return false;
}

enum plim_status plim_notch_apply(const struct plim_notches *notches, const char *const *command,
                                  size_t n, struct plim_arena *arena, const char ***out,
                                  struct plim_err *err)
{
    void *room;
    PLIM_TRY(plim_arena_array(arena, n + 1, sizeof(const char *), &room, err));
    const char **made = room;
    memcpy(made, command, n * sizeof(*made));
    made[n] = NULL;
    for (size_t i = 0; i < notches->n; i++) {
        const struct plim_notch *notch = &notches->list[i];
        char value[64], whole[200];
        size_t at, skip;
        if (notch->taken == 0 || !find(notch->flag, command, n, &at, &skip) ||
            !value_after(notch, command, n, notch->taken, value, sizeof(value))) {
            continue;
        }
        (void)snprintf(whole, sizeof(whole), "%.*s%s", (int)skip, command[at], value);
        PLIM_TRY(plim_arena_text(arena, whole, &made[at], err));
    }
    *out = made;
    return PLIM_OK;
}
