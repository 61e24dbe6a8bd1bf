/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from the environment. */

#include "settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB        (UINT64_C(1) << 20)
#define CLASS_MOST MIB /* hybrid: larger sizes are taken as they are */

static void complain(const char *name, const char *value, const char *wanted)
{
    fprintf(stderr, "plimsoll alloc: %s=%.100s is ignored: wanted %s\n", name, value, wanted);
}

/* A whole number that fills the text. */
static bool number(const char *text, uint64_t *out, char stop, const char **rest)
{
    char *end;
    if (*text < '0' || *text > '9') {
        return false;
    }
    *out = strtoull(text, &end, 10);
    *rest = end;
    return *end == '\0' || *end == stop;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void read_sizes(struct plim_alloc_settings *s, const char *text)
{
    const char *at = text;
    while (*at && s->n_sizes < PLIM_ALLOC_SIZES) {
        uint64_t size;
        if (!number(at, &size, ',', &at) || size == 0) {
            complain("PLIMSOLL_ALLOC_SIZES", text, "sizes in bytes, separated by commas");
            s->n_sizes = 0;
            return;
        }
        s->sizes[s->n_sizes++] = size;
        at += *at == ',';
    }
    if (*at) {
        complain("PLIMSOLL_ALLOC_SIZES", text, "at most 256 sizes");
        s->n_sizes = 0;
        return;
    }
    qsort(s->sizes, s->n_sizes, sizeof s->sizes[0], ascending);
}

static void read_mode(struct plim_alloc_settings *s, const char *text)
{
    if (strcmp(text, "hybrid") == 0) {
        s->mode = PLIM_ALLOC_HYBRID;
    } else if (strcmp(text, "pool") == 0) {
        s->mode = PLIM_ALLOC_POOL;
    } else if (strcmp(text, "stitch") != 0) {
        complain("PLIMSOLL_ALLOC_MODE", text, "stitch, hybrid or pool");
    }
}

void plim_alloc_settings_read(struct plim_alloc_settings *out)
{
    struct plim_alloc_settings s = {.limit = UINT64_MAX};
    const char *mode = getenv("PLIMSOLL_ALLOC_MODE"), *sizes = getenv("PLIMSOLL_ALLOC_SIZES");
    const char *page = getenv("PLIMSOLL_ALLOC_PAGE_MB"), *slack = getenv("PLIMSOLL_ALLOC_SLACK");
    const char *limit = getenv("PLIMSOLL_ALLOC_LIMIT_MB"), *rest;
    uint64_t n;
    if (mode) {
        read_mode(&s, mode);
    }
    if (sizes) {
        read_sizes(&s, sizes);
    }
    if (s.mode == PLIM_ALLOC_POOL && s.n_sizes == 0) {
        complain("PLIMSOLL_ALLOC_MODE", "pool", "PLIMSOLL_ALLOC_SIZES beside it");
        s.mode = PLIM_ALLOC_STITCH;
    }
    if (page && number(page, &n, '\0', &rest) && n >= 2 && n <= 512 && (n & (n - 1)) == 0) {
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
    if (limit && number(limit, &n, '\0', &rest) && n > 0 && n < UINT64_MAX / MIB) {
        s.limit = n * MIB;
    } else if (limit) {
        complain("PLIMSOLL_ALLOC_LIMIT_MB", limit, "a number of MiB");
    }
    *out = s;
}

/* Up to the next multiple of an eighth of the power of two below. */
static uint64_t eighths(uint64_t size)
{
    if (size <= 4096 || size > CLASS_MOST) {
        return size;
    }
    uint64_t step = UINT64_C(1) << (63 - __builtin_clzll(size - 1)) >> 3;
    return (size + step - 1) & ~(step - 1);
}

uint64_t plim_alloc_settings_round(const struct plim_alloc_settings *s, uint64_t size)
{
    if (s->mode == PLIM_ALLOC_HYBRID) {
        return eighths(size);
    }
    if (s->mode == PLIM_ALLOC_POOL) {
        size_t lo = 0, hi = s->n_sizes;
        while (lo < hi) {
            size_t mid = (lo + hi) / 2;
            if (s->sizes[mid] < size) {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        return lo < s->n_sizes ? s->sizes[lo] : size;
    }
    return size;
}
