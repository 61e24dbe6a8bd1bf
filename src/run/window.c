/* SPDX-License-Identifier: Apache-2.0 */
/* The time of day at which planned restarts may happen, "22:30-05:00", local time. */

#include "run/run_int.h"

#include <stdio.h>
#include <time.h>

enum plim_status plim__window_parse(const char *text, struct plim__window *out,
                                    struct plim_err *err)
{
    unsigned h1, m1, h2, m2;
    int used = 0;
    *out = (struct plim__window){0};
    if (text == NULL) {
        return PLIM_OK;
    }
    // NOLINTNEXTLINE(cert-err34-c): checked by what was read
    if (sscanf(text, "%2u:%2u-%2u:%2u%n", &h1, &m1, &h2, &m2, &used) != 4 || text[used] != '\0' ||
        h1 > 23 || h2 > 23 || m1 > 59 || m2 > 59) {
        plim__err_set(err, PLIM_E_USAGE, "--restart-window: '%.40s' is no time of day", text);
        plim__err_hint(err, "from and to, as 02:00-05:00");
        return PLIM_E_USAGE;
    }
    *out = (struct plim__window){.from = h1 * 60 + m1, .to = h2 * 60 + m2};
    return PLIM_OK;
}

bool plim__window_open(const struct plim__window *window, uint64_t unix_s)
{
    struct tm local;
    time_t t = (time_t)unix_s;
    if (window->from == window->to || localtime_r(&t, &local) == NULL) {
        return window->from == window->to;
    }
    unsigned now = (unsigned)local.tm_hour * 60 + (unsigned)local.tm_min;
    bool over_midnight = window->from > window->to;
    return over_midnight ? now >= window->from || now < window->to
                         : now >= window->from && now < window->to;
}
