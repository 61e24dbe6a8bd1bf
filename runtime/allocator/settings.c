/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from the environment. */

#include "settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB        (UINT64_C(1) << 20)
#define SIZES_TEXT 8192 /* bytes of a file of sizes: PLIM_ENGINE_SIZES numbers */

static void complain(const char *name, const char *value, const char *wanted)
{
    fprintf(stderr, "plimsoll alloc: %s=%.100s is ignored: wanted %s\n", name, value, wanted);
}

/* A whole number that is the text. */
static bool number(const char *text, uint64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9') {
        return false;
    }
    *out = strtoull(text, &end, 10);
    return *end == '\0';
}

/* A whole file. False: it cannot be read, or does not leave a byte of the room. */
static bool read_file(const char *path, char *out, size_t room, size_t *n)
{
    FILE *file = fopen(path, "re");
    *n = file ? fread(out, 1, room, file) : room;
    bool good = file && *n < room && !ferror(file);
    if (file) {
        fclose(file);
    }
    return good;
}

/* "4096,8192", or "@FILE" with such a text in it. */
static void read_sizes(struct plim_alloc_settings *s, const char *value)
{
    char text[SIZES_TEXT];
    const char *sizes = value;
    size_t n;
    if (*value == '@') {
        sizes = text;
        if (!read_file(value + 1, text, sizeof text, &n)) {
            complain("PLIMSOLL_ALLOC_SIZES", value, "a file of sizes that can be read");
            return;
        }
        text[n] = '\0';
    }
    const char *wanted = plim_engine_sizes_parse(sizes, &s->rounding);
    if (wanted) {
        complain("PLIMSOLL_ALLOC_SIZES", value, wanted);
    }
}

/* The file of mode plan. */
static bool read_plan(struct plim_alloc_settings *s, const char *path)
{
    char wanted[160] = "a file that can be read, of at most 64 MiB";
    struct plim_seating_fault fault = {0};
    char *text = malloc(PLIM_SEATING_FILE);
    size_t n = 0;
    bool good = text && read_file(path, text, PLIM_SEATING_FILE, &n);
    if (good && !plim_seating_parse(text, n, &s->plan, &fault)) {
        snprintf(wanted, sizeof wanted, "a plan; line %llu: %s", (unsigned long long)fault.line,
                 fault.what);
        good = false;
    }
    free(text);
    if (!good) {
        complain("PLIMSOLL_ALLOC_PLAN", path, wanted);
    }
    return good;
}

/* A mode is what it is only with what belongs to it, which belongs to nothing else. */
static void complete_mode(struct plim_alloc_settings *s, const char *sizes, const char *plan)
{
    struct plim_engine_rounding *r = &s->rounding;
    bool planned = r->mode == PLIM_ENGINE_PLAN;
    if (r->mode == PLIM_ENGINE_POOL && r->n_sizes == 0) {
        complain("PLIMSOLL_ALLOC_MODE", "pool", "PLIMSOLL_ALLOC_SIZES beside it");
        r->mode = PLIM_ENGINE_STITCH;
    } else if (r->mode == PLIM_ENGINE_PLAN && !plan) {
        complain("PLIMSOLL_ALLOC_MODE", "plan", "PLIMSOLL_ALLOC_PLAN beside it");
        r->mode = PLIM_ENGINE_STITCH;
    } else if (r->mode == PLIM_ENGINE_PLAN && !read_plan(s, plan)) {
        r->mode = PLIM_ENGINE_STITCH;
    }
    if (r->n_sizes > 0 && r->mode != PLIM_ENGINE_POOL) {
        complain("PLIMSOLL_ALLOC_SIZES", sizes, "PLIMSOLL_ALLOC_MODE=pool beside it");
    }
    if (plan && !planned) {
        complain("PLIMSOLL_ALLOC_PLAN", plan, "PLIMSOLL_ALLOC_MODE=plan beside it");
    }
}

/* A name that nobody reads is a slip of the pen more often than not. */
static void look_for_others(void)
{
    static const char *const known[] = {"MODE",  "SIZES",    "PLAN",   "PAGE_MB",
                                        "SLACK", "LIMIT_MB", "LIBRARY"};
    const size_t prefix = sizeof "PLIMSOLL_ALLOC_" - 1, n = sizeof known / sizeof *known;
    for (char **each = environ; each && *each; each++) {
        if (strncmp(*each, "PLIMSOLL_ALLOC_", prefix) != 0) {
            continue;
        }
        const char *name = *each + prefix;
        size_t length = strcspn(name, "="), k = 0;
        while (k < n && (strlen(known[k]) != length || strncmp(known[k], name, length) != 0)) {
            k++;
        }
        if (k == n) {
            fprintf(stderr, "plimsoll alloc: PLIMSOLL_ALLOC_%.*s is no setting\n",
                    (int)(length < 100 ? length : 100), name);
        }
    }
}

void plim_alloc_settings_read(struct plim_alloc_settings *out)
{
    struct plim_alloc_settings s = {.limit = UINT64_MAX};
    const char *mode = getenv("PLIMSOLL_ALLOC_MODE"), *sizes = getenv("PLIMSOLL_ALLOC_SIZES");
    const char *page = getenv("PLIMSOLL_ALLOC_PAGE_MB"), *slack = getenv("PLIMSOLL_ALLOC_SLACK");
    const char *limit = getenv("PLIMSOLL_ALLOC_LIMIT_MB");
    struct plim_engine_rounding *r = &s.rounding;
    uint64_t n;
    if (mode && !plim_engine_mode_parse(mode, &r->mode)) {
        complain("PLIMSOLL_ALLOC_MODE", mode, "stitch, hybrid, pool or plan");
    }
    if (sizes) {
        read_sizes(&s, sizes);
    }
    complete_mode(&s, sizes, getenv("PLIMSOLL_ALLOC_PLAN"));
    if (page && number(page, &n) && n >= 2 && n <= 512 && (n & (n - 1)) == 0) {
        s.page = n * MIB;
    } else if (page) {
        complain("PLIMSOLL_ALLOC_PAGE_MB", page, "a power of two from 2 to 512");
    }
    if (slack) {
        char *end;
        double percent = strtod(slack, &end);
        if (end != slack && *end == '\0' && percent > 0 && percent <= 100) {
            s.slack = percent / 100;
        } else {
            complain("PLIMSOLL_ALLOC_SLACK", slack, "a percentage above 0, at most 100");
        }
    }
    if (limit && number(limit, &n) && n > 0 && n < UINT64_MAX / MIB) {
        s.limit = n * MIB;
    } else if (limit) {
        complain("PLIMSOLL_ALLOC_LIMIT_MB", limit, "a number of MiB");
    }
    look_for_others();
    *out = s;
}
