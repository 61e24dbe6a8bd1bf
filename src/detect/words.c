/* SPDX-License-Identifier: Apache-2.0 */

/* Words that several rules need. */

#include "detect/detect_int.h"

#include <stdarg.h>
#include <stdio.h>

void plim__finding_say(char *text, size_t room, const char *fmt, ...)
{
    size_t n = strlen(text);
    va_list args;
    if (n > 0 && n + 1 < room) {
        text[n++] = '\n';
        text[n] = '\0';
    }
    va_start(args, fmt);
    (void)vsnprintf(text + n, room - n, fmt, args);
    va_end(args);
}

char *plim__span(char buf[24], double seconds)
{
    if (!(seconds < 86400.0 * 3650)) {
        (void)snprintf(buf, 24, "years");
    } else if (seconds < 100) {
        (void)snprintf(buf, 24, "%.0f s", seconds);
    } else if (seconds < 100 * 60) {
        (void)snprintf(buf, 24, "%.0f min", seconds / 60);
    } else if (seconds < 48 * 3600) {
        (void)snprintf(buf, 24, "%.1f h", seconds / 3600);
    } else {
        (void)snprintf(buf, 24, "%.1f days", seconds / 86400);
    }
    return buf;
}
