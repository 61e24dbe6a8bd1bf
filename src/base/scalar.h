/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_SCALAR_H
#define PLIM_BASE_SCALAR_H

/*
 * Single values as people write them, on a command line or in a file: yes or no, numbers, durations, one word
 * of several. (Sizes are in bytes.h.) Each reads all of the text or returns false, and then leaves *out alone.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool plim_flag_parse(const char *text, bool *out); /* 1 yes true on; 0 no false off, or nothing */
bool plim_count_parse(const char *text, uint64_t *out); /* a whole number, decimal */
bool plim_real_parse(const char *text, double *out);    /* a finite number */

/** plim_duration_parse() - "250ms", "90s", "5m", "1.5h", "2d" in nanoseconds; a bare number is seconds. */
bool plim_duration_parse(const char *text, uint64_t *ns);

/** plim_choice_offers() - whether `text` is one of "text|json|markdown". */
bool plim_choice_offers(const char *choices, const char *text);

#define PLIM_TIME_TEXT 32 /* room for any plim_time_format() result, NUL included */

/** plim_time_format() - nanoseconds since 1970 as "2026-01-31T12:00:00.000Z" (RFC 3339, UTC); returned. */
char *plim_time_format(char buf[PLIM_TIME_TEXT], uint64_t ns);

#define PLIM_DURATION_TEXT 24 /* room for any plim_duration_format() result, NUL included */

/** plim_duration_format() - "850 ms", "42 s", "12 min", "3.5 h", "2.1 days", for people; returned. */
char *plim_duration_format(char buf[PLIM_DURATION_TEXT], double seconds);

#endif
