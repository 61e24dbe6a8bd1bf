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
        plim__err_set(err, PLIM_E_USAGE, "--notch: '%.80s' is no notch", text);
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
        return plim__fail(err, PLIM_E_USAGE, "--notch: no step or limit in '%.80s'", text);
    }
    notches->list[notches->n++] = made;
    return PLIM_OK;
}

/* How many characters of a word are the flag with its dashes; 0: it is another one. vLLM takes "_" for "-", and others
 * have flags with one dash. */
static size_t flag_length(const char *flag, const char *word)
{
    size_t dashes = strspn(word, "-");
    size_t n = 0;
    if (dashes < 1 || dashes > 2) {
        return 0;
    }
    for (const char *w = word + dashes; flag[n] != '\0'; n++) {
        if (w[n] != flag[n] && !(strchr("-_", flag[n]) && (w[n] == '-' || w[n] == '_'))) {
            return 0;
        }
    }
    return dashes + n;
}

/* Where the value of a flag is: the argument, and how many characters of it come before the value. As for the program itself,
 * the last one counts. */
static bool find(const char *flag, const char *const *command, size_t n, size_t *at, size_t *skip)
{
    for (size_t i = n; i-- > 0;) {
        size_t length = flag_length(flag, command[i]);
        if (length > 0 && command[i][length] == '=') {
            *at = i;
            *skip = length + 1;
            return true;
        }
        if (length > 0 && command[i][length] == '\0' && i + 1 < n) {
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

/* A number as engines take it: "8192", "0.9", and with vLLM's suffixes "32k" (32,000), "32K" (32,768). */
static bool read_number(const char *text, double *value, bool *whole)
{
    static const struct {
        char suffix;
        double scale;
    } scales[] = {{'k', 1e3}, {'K', 0x1p10}, {'m', 1e6}, {'M', 0x1p20}, {'g', 1e9}, {'G', 0x1p30}};
    char *end = NULL;
    *value = strtod(text, &end);
    *whole = strspn(text, "0123456789") == strlen(text);
    for (size_t i = 0; end != text && i < sizeof(scales) / sizeof(*scales); i++) {
        if (end[0] == scales[i].suffix && end[1] == '\0') {
            *value *= scales[i].scale;
            *whole = true;
            end++;
        }
    }
    return end != text && *end == '\0' && isfinite(*value);
}

/* The value after `times` steps; false: the flag is not there, has no number, or would be below the limit, or nothing. */
static bool value_after(const struct plim_notch *notch, const char *const *command, size_t n,
                        unsigned times, char *out, size_t room)
{
    size_t at, skip;
    double value;
    bool whole;
    if (!find(notch->flag, command, n, &at, &skip) ||
        !read_number(command[at] + skip, &value, &whole)) {
        return false;
    }
    double least = fmax(notch->limit, whole ? 1 : 1e-9);
    value = stepped(notch, value, times);
    if (value < least - 1e-9) {
        return false;
    }
    (void)snprintf(out, room, whole ? "%.0f" : "%.6g", whole ? floor(value + 1e-9) : value);
    return true;
}

const char *plim_notch_useless(const struct plim_notch *notch, const char *const *command, size_t n)
{
    size_t at, skip;
    double value;
    bool whole;
    char after[64];
    if (!find(notch->flag, command, n, &at, &skip)) {
        return "the command has no such flag";
    }
    if (!read_number(command[at] + skip, &value, &whole)) {
        return "its value in the command is no number";
    }
    return value_after(notch, command, n, 1, after, sizeof(after)) ? NULL : "it is at its limit";
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
