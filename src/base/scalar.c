/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing of single values: see scalar.h. */

#include "base/scalar.h"

#include "base/num.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool is_one_of(const char *const *words, size_t n, const char *text)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool plim_flag_parse(const char *text, bool *out)
{
    static const char *const yes[] = {"1", "yes", "true", "on"};
    static const char *const no[] = {"", "0", "no", "false", "off"};
    bool on = is_one_of(yes, PLIM_COUNT_OF(yes), text);
    if (!on && !is_one_of(no, PLIM_COUNT_OF(no), text)) {
        return false;
    }
    *out = on;
    return true;
}

bool plim_count_parse(const char *text, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0) {
        return false;
    }
    *out = v;
    return true;
}

bool plim_real_parse(const char *text, double *out)
{
    char *end = NULL;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || v - v != 0.0) {
        return false;
    }
    *out = v;
    return true;
}

bool plim_duration_parse(const char *text, uint64_t *ns)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"", 1e9},  {"ns", 1.0}, {"us", 1e3},   {"ms", 1e6},
                 {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {"d", 86400e9}};
    char *end = NULL;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno != 0 || !isdigit((unsigned char)text[0])) {
        return false;
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(units); i++) {
        if (strcmp(end, units[i].unit) == 0 && v * units[i].ns < 9e18) {
            *ns = (uint64_t)(v * units[i].ns);
            return true;
        }
    }
    return false;
}

bool plim_choice_offers(const char *choices, const char *text)
{
    size_t n = strlen(text);
    const char *word = choices;
    while (n > 0 && word != NULL) {
        size_t len = strcspn(word, "|");
        if (len == n && memcmp(word, text, n) == 0) {
            return true;
        }
        word = word[len] == '|' ? word + len + 1 : NULL;
    }
    return false;
}

char *plim_time_format(char buf[PLIM_TIME_TEXT], uint64_t ns)
{
    time_t seconds = (time_t)(ns / 1000000000U);
    struct tm t = {0};
    char date[PLIM_TIME_TEXT] = "";
    (void)gmtime_r(&seconds, &t);
    (void)strftime(date, sizeof(date) - 6, "%Y-%m-%dT%H:%M:%S", &t);
    snprintf(buf, PLIM_TIME_TEXT, "%.24s.%03uZ", date, (unsigned)(ns / 1000000U % 1000U));
    return buf;
}

char *plim_duration_format(char buf[PLIM_DURATION_TEXT], double seconds)
{
    static const struct {
        double below;
        double unit;
        int decimals;
        const char *word;
    } steps[] = {{1, 1e-3, 0, "ms"},
                 {100, 1, 0, "s"},
                 {90 * 60, 60, 0, "min"},
                 {48 * 3600.0, 3600, 1, "h"},
                 {1e300, 86400, 1, "days"}};
    size_t i = 0;
    while (i + 1 < PLIM_COUNT_OF(steps) && seconds >= steps[i].below) {
        i++;
    }
    snprintf(buf, PLIM_DURATION_TEXT, "%.*f %s", steps[i].decimals, seconds / steps[i].unit,
             steps[i].word);
    return buf;
}
