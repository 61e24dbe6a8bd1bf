/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line of a log: taking out what terminals and log collectors put in (colours, carriage returns,
 * NULs, JSON escapes), and finding where the logger's prefix ends and the program's message begins.
 * The prefix also tells when, and by which rank and process.
 */

#include "format/oomtext_internal.h"

#include <stdio.h>

#define PREFIX_MOST 200 /* most bytes of a line that are taken for a prefix */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.' || c == '-' || c == '/';
}

/* ---- cleaning ---- */

/* Bytes of a terminal's escape sequence whose introducer (ESC or its JSON form) is `intro` bytes. */
static size_t escape_length(struct plim_str s, size_t intro)
{
    size_t i = intro;
    if (i < s.n && s.p[i] == '[') {
        for (i++; i < s.n && (unsigned char)s.p[i] < 0x40; i++) {
        }
        return i < s.n ? i + 1 : i;
    }
    if (i < s.n && s.p[i] == ']') {
        for (i++; i < s.n && s.p[i] != '\a' && s.p[i] != 0x1b; i++) {
        }
        return i + 2 <= s.n && s.p[i] == 0x1b ? i + 2 : i < s.n ? i + 1 : i;
    }
    return i < s.n ? i + 1 : i;
}

/* A backslash sequence of a JSON log at s: bytes taken, and what stands for it (0 = nothing). */
static size_t json_escape(struct plim_str s, char *out)
{
    static const struct plim_str color = {"\\u001b", 6};
    if (plim_str_starts(s, color)) {
        *out = 0;
        return escape_length(s, color.n);
    }
    if (s.n >= 2 && (s.p[1] == 'n' || s.p[1] == '"')) {
        *out = s.p[1] == 'n' ? '\n' : '"';
        return 2;
    }
    *out = '\\';
    return 1;
}

size_t plim__oom_clean(struct plim_str raw, char *out, uint64_t *control)
{
    size_t n = 0;
    for (size_t i = 0; i < raw.n;) {
        struct plim_str rest = plim_str_skip(raw, i);
        unsigned char c = (unsigned char)raw.p[i];
        char put = (char)c;
        size_t used = 1;
        if (c == 0x1b) {
            used = escape_length(rest, 1);
            put = 0;
        } else if (c == '\\') {
            used = json_escape(rest, &put);
        } else if (c == '\r') {
            put = rest.n > 1 && rest.p[1] != '\n' && rest.p[1] != '\r' ? '\n' : 0;
        } else if (c == 0xc2 && rest.n > 1 && (unsigned char)rest.p[1] == 0xa0) {
            used = 2; /* no-break space */
            put = ' ';
        } else if ((c < 0x20 && c != '\t' && c != '\n') || c == 0x7f) {
            *control += c != '\b' && c != '\f';
            put = 0;
        }
        if (put) {
            out[n++] = put;
        }
        i += used;
    }
    return n;
}

/* ---- time ---- */

/* Days since 1970-01-01 (H. Hinnant, "chrono-compatible low-level date algorithms"). */
static int64_t days_from_date(int64_t y, unsigned m, unsigned d)
{
    y -= m <= 2;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    unsigned yoe = (unsigned)(y - era * 400);
    unsigned doy = (153 * (m > 2 ? m - 3 : m + 9) + 2) / 5 + d - 1;
    unsigned doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    return era * 146097 + (int64_t)doe - 719468;
}

struct stamp {
    unsigned year, month, day, hour, minute, second, ms;
};

/* Exactly `digits` digits at *at. */
static bool take(struct plim_str s, size_t *at, unsigned digits, unsigned *out)
{
    unsigned v = 0;
    for (unsigned i = 0; i < digits; i++) {
        if (*at + i >= s.n || !is_digit(s.p[*at + i])) {
            return false;
        }
        v = v * 10 + (unsigned)(s.p[*at + i] - '0');
    }
    *at += digits;
    *out = v;
    return true;
}

static bool take_char(struct plim_str s, size_t *at, const char *set)
{
    if (*at < s.n && s.p[*at] && strchr(set, s.p[*at])) {
        ++*at;
        return true;
    }
    return false;
}

/* HH:MM:SS[.,fraction][Z|+hh:mm] */
static bool take_clock(struct plim_str s, size_t *at, struct stamp *out)
{
    size_t i = *at;
    unsigned scale = 100, digit;
    if (!take(s, &i, 2, &out->hour) || !take_char(s, &i, ":") || !take(s, &i, 2, &out->minute) ||
        !take_char(s, &i, ":") || !take(s, &i, 2, &out->second)) {
        return false;
    }
    if (i + 1 < s.n && (s.p[i] == '.' || s.p[i] == ',') && is_digit(s.p[i + 1])) {
        for (i++; take(s, &i, 1, &digit); scale /= 10) {
            out->ms += digit * scale;
        }
    }
    if (!take_char(s, &i, "Z") && take_char(s, &i, "+-")) {
        while (i < s.n && (is_digit(s.p[i]) || s.p[i] == ':')) {
            i++;
        }
    }
    *at = i;
    return true;
}

static unsigned month_at(struct plim_str s)
{
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    for (unsigned m = 0; s.n >= 4 && m < 12; m++) {
        if (memcmp(s.p, names + 3 * (size_t)m, 3) == 0 && s.p[3] == ' ') {
            return m + 1;
        }
    }
    return 0;
}

/* A date in one of the usual orders, up to the clock; the clock alone is fine too. */
static bool take_date(struct plim_str s, size_t *at, struct stamp *out)
{
    size_t i = *at;
    if (take(s, &i, 4, &out->year) && take_char(s, &i, "-/") && take(s, &i, 2, &out->month) &&
        take_char(s, &i, "-/") && take(s, &i, 2, &out->day) && take_char(s, &i, "T _")) {
        *at = i;
        return true;
    }
    *out = (struct stamp){.year = 2000, .month = 1, .day = 1};
    i = *at;
    if (take(s, &i, 2, &out->month) && take_char(s, &i, "-/") && take(s, &i, 2, &out->day) &&
        take_char(s, &i, " T")) {
        *at = i;
        return true;
    }
    *out = (struct stamp){.year = 2000, .month = 1, .day = 1};
    i = *at + 1;
    if (*at < s.n && strchr("IWEFD", s.p[*at]) && take(s, &i, 2, &out->month) &&
        take(s, &i, 2, &out->day) && take_char(s, &i, " ")) { /* glog: E0501 12:34:56 */
        *at = i;
        return true;
    }
    *out = (struct stamp){.year = 2000, .month = 1, .day = 1};
    unsigned month = month_at(plim_str_skip(s, *at));
    if (month > 0) { /* syslog: May  1 12:34:56 */
        i = *at + 4;
        take_char(s, &i, " ");
        if ((take(s, &i, 2, &out->day) || take(s, &i, 1, &out->day)) && take_char(s, &i, " ")) {
            out->month = month;
            *at = i;
            return true;
        }
        *out = (struct stamp){.year = 2000, .month = 1, .day = 1};
    }
    return true;
}

/* A time stamp at the start of s; bytes, 0 when there is none. */
static size_t stamp_length(struct plim_str s, int64_t *time_ms)
{
    struct stamp t = {0};
    size_t i = 0;
    bool bracket = take_char(s, &i, "[");
    if (!take_date(s, &i, &t) || !take_clock(s, &i, &t) || t.month < 1 || t.month > 12 ||
        t.day < 1 || t.day > 31) {
        return 0;
    }
    *time_ms = ((days_from_date(t.year, t.month, t.day) * 24 + t.hour) * 60 + t.minute) * 60000 +
               (int64_t)t.second * 1000 + t.ms;
    size_t end = i; /* "[2026-05-01 12:00:00 TP7]" */
    while (bracket && end < s.n && end < i + 24 && (is_word(s.p[end]) || s.p[end] == ' ')) {
        end++;
    }
    return bracket && end < s.n && s.p[end] == ']' ? end + 1 : i;
}

/* ---- the other parts of a prefix ---- */

static size_t level_length(struct plim_str s)
{
    static const char *const levels[] = {"INFO",     "WARNING",  "WARN",    "ERROR",
                                         "DEBUG",    "CRITICAL", "FATAL",   "stderr F",
                                         "stdout F", "stderr P", "stdout P"};
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
        size_t n = strlen(levels[i]);
        if (s.n > n && memcmp(s.p, levels[i], n) == 0 && (s.p[n] == ' ' || s.p[n] == ':')) {
            return n + 1;
        }
    }
    return 0;
}

/* "(EngineCore_DP0 pid=123)", "[rank0]:", "[core.py:390]", "[ 1234.5678]". */
static size_t bracket_length(struct plim_str s)
{
    bool digit = false;
    if (s.n == 0 || (s.p[0] != '(' && s.p[0] != '[')) {
        return 0;
    }
    char close = s.p[0] == '(' ? ')' : ']';
    for (size_t i = 1; i < s.n && i < 80; i++) {
        if (s.p[i] == close) {
            bool named = s.p[0] == '[' ||
                         plim_str_find((struct plim_str){s.p, i}, PLIM_STR("pid=")) != SIZE_MAX ||
                         plim_str_find((struct plim_str){s.p, i}, PLIM_STR("rank")) != SIZE_MAX;
            bool behind = plim_str_trim(plim_str_skip(s, i + 1)).n > 0; /* a prefix has a message */
            return digit && named && behind ? i + 1 + (i + 1 < s.n && s.p[i + 1] == ':') : 0;
        }
        digit |= is_digit(s.p[i]);
        if (!is_word(s.p[i]) && !strchr(" :=,", s.p[i])) {
            return 0;
        }
    }
    return 0;
}

/* "web_1  | ", "12345 file.cc:123] ", "file.py:470] ", "- name - ". */
static size_t word_length(struct plim_str s)
{
    size_t i = 0;
    if (s.n >= 2 && s.p[0] == '-' && s.p[1] == ' ') {
        return 2;
    }
    while (i < s.n && i < 60 && is_word(s.p[i])) {
        i++;
    }
    size_t word = i;
    while (i < s.n && s.p[i] == ' ') {
        i++;
    }
    if (word > 0 && i + 1 < s.n && s.p[i] == '|' && s.p[i + 1] == ' ') {
        return i + 2;
    }
    if (word > 0 && i + 1 < s.n && s.p[i] == '-' && s.p[i + 1] == ' ' && i == word + 1) {
        return i + 2;
    }
    i = word;
    if (word > 0 && i < s.n && s.p[i] == ':') {
        for (i++; i < s.n && is_digit(s.p[i]); i++) {
        }
        return i > word + 1 && i < s.n && s.p[i] == ']' ? i + 1 : 0;
    }
    return 0;
}

/* A glog thread id: digits and a blank in front of "file.cc:12]". */
static size_t thread_length(struct plim_str s)
{
    size_t i = 0;
    while (i < s.n && i < 12 && is_digit(s.p[i])) {
        i++;
    }
    if (i == 0 || i >= s.n || s.p[i] != ' ') {
        return 0;
    }
    return word_length(plim_str_skip(s, i + 1)) > 0 ? i + 1 : 0;
}

/* The number behind the first of the words in s, or -1. */
static int64_t number_behind(struct plim_str s, const char *const *words, size_t n)
{
    for (size_t w = 0; w < n; w++) {
        size_t i = plim_str_find(s, plim_str_from(words[w]));
        if (i == SIZE_MAX) {
            continue;
        }
        i += strlen(words[w]);
        while (i < s.n && strchr(" =:_", s.p[i])) {
            i++;
        }
        int64_t v = -1;
        for (; i < s.n && is_digit(s.p[i]) && v < INT64_MAX / 100; i++) {
            v = (v < 0 ? 0 : v * 10) + (s.p[i] - '0');
        }
        if (v >= 0) {
            return v;
        }
    }
    return -1;
}

struct plim__oom_prefix plim__oom_prefix(struct plim_str line)
{
    static const char *const rank_words[] = {"rank", "Rank", "[default", "TP", "Worker"};
    static const char *const pid_words[] = {"pid=", "pid "};
    struct plim__oom_prefix prefix = {.time_ms = PLIM_OOM_NO_TIME, .rank = -1, .pid = -1};
    size_t i = 0, used = 1;
    bool only_blanks = true; /* indentation is part of the message */
    while (used > 0 && i < PREFIX_MOST) {
        struct plim_str rest = plim_str_skip(line, i);
        int64_t time_ms = PLIM_OOM_NO_TIME;
        bool blank = rest.n > 0 && (rest.p[0] == ' ' || rest.p[0] == '\t');
        used = blank ? 1 : stamp_length(rest, &time_ms);
        used = used ? used : level_length(rest);
        used = used ? used : bracket_length(rest);
        used = used ? used : thread_length(rest);
        used = used ? used : word_length(rest);
        prefix.time_ms = prefix.time_ms == PLIM_OOM_NO_TIME ? time_ms : prefix.time_ms;
        only_blanks &= blank || used == 0;
        i += used;
    }
    i = only_blanks ? 0 : i;
    prefix.n = i < line.n ? i : line.n;
    struct plim_str head = {line.p, prefix.n};
    prefix.rank = number_behind(head, rank_words, sizeof(rank_words) / sizeof(rank_words[0]));
    prefix.pid = number_behind(head, pid_words, sizeof(pid_words) / sizeof(pid_words[0]));
    return prefix;
}
