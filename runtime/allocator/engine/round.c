/* SPDX-License-Identifier: Apache-2.0 */
/* Modes: the sizes that requests are rounded up to, and the words for them. */

#include "engine_int.h"

#include <string.h>

#define CLASS_LEAST  4096 /* hybrid: sizes up to here, bytes, are taken as they are */
#define SIZE_LARGEST (UINT64_C(1) << 48)

const char *plim_engine_mode_text(enum plim_engine_mode mode)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_ENGINE_MODE_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)mode < PLIM_ENGINE_MODES ? texts[mode] : "unknown";
}

bool plim_engine_mode_parse(const char *text, enum plim_engine_mode *mode)
{
    for (unsigned i = 0; i < PLIM_ENGINE_MODES; i++) {
        if (strcmp(text, plim_engine_mode_text((enum plim_engine_mode)i)) == 0) {
            *mode = (enum plim_engine_mode)i;
            return true;
        }
    }
    return false;
}

static bool is_gap(char c)
{
    return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Into its place among the sizes so far; one that is there already stays alone. False: no room. */
static bool add_size(struct plim_engine_rounding *r, uint64_t size)
{
    uint32_t at = r->n_sizes;
    while (at > 0 && r->sizes[at - 1] >= size) {
        at--;
    }
    if (at < r->n_sizes && r->sizes[at] == size) {
        return true;
    }
    if (r->n_sizes == PLIM_ENGINE_SIZES) {
        return false;
    }
    memmove(&r->sizes[at + 1], &r->sizes[at], (r->n_sizes - at) * sizeof r->sizes[0]);
    r->sizes[at] = size;
    r->n_sizes++;
    return true;
}

const char *plim_engine_sizes_parse(const char *text, struct plim_engine_rounding *out)
{
    struct plim_engine_rounding r = {.mode = out->mode};
    for (const char *at = text; *at;) {
        if (is_gap(*at)) {
            at++;
            continue;
        }
        uint64_t size = 0;
        const char *start = at;
        for (; *at >= '0' && *at <= '9' && size < SIZE_LARGEST; at++) {
            size = size * 10 + (uint64_t)(*at - '0');
        }
        if (at == start || size == 0 || size > SIZE_LARGEST || (*at && !is_gap(*at))) {
            return "sizes in bytes, separated by commas";
        }
        if (!add_size(&r, round_up(size, PLIM_ENGINE_UNIT))) {
            return "at most 256 sizes";
        }
    }
    if (r.n_sizes == 0) {
        return "at least one size in bytes";
    }
    *out = r;
    return NULL;
}

/* Up to the next multiple of an eighth of the power of two below. */
static uint64_t eighths(uint64_t size)
{
    if (size <= CLASS_LEAST || size > PLIM_ENGINE_SMALL) {
        return size;
    }
    uint64_t step = UINT64_C(1) << (63 - __builtin_clzll(size - 1)) >> 3;
    return round_up(size, step);
}

/* The next of the list; one above all of them is taken as it is. */
static uint64_t listed(const struct plim_engine_rounding *r, uint64_t size)
{
    uint32_t lo = 0, hi = r->n_sizes;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (r->sizes[mid] < size) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < r->n_sizes ? r->sizes[lo] : size;
}

uint64_t plim_engine_round(const struct plim_engine_rounding *r, uint64_t size)
{
    uint64_t want = r->mode == PLIM_ENGINE_HYBRID ? eighths(size)
                    : r->mode == PLIM_ENGINE_POOL ? listed(r, size)
                                                  : size;
    return round_up(want, PLIM_ENGINE_UNIT);
}
