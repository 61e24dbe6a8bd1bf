/* SPDX-License-Identifier: Apache-2.0 */
/* See blocks.h. */

#include "serving/blocks.h"

#include <stdlib.h>

#define MOST_ADDED   0.01  /* share of the bytes asked for */
#define MOST_SIZES   4096u /* that are looked at pair by pair */
#define DEAREST_PAIR 1e300

/* ---- what is asked for -------------------------------------------------------------------------------- */

struct note {
    struct plim_map asked; /* bytes -> number of requests */
    enum plim_status status;
};

static void note_one(void *ctx, uint64_t index, uint64_t bytes)
{
    struct note *note = ctx;
    (void)index;
    if (bytes == 0 || note->status != PLIM_OK) {
        return;
    }
    uint64_t size = plim_round_up(bytes, PLIM_ENGINE_UNIT);
    uint64_t *known = plim_map_get(&note->asked, size);
    if (known) {
        ++*known;
    } else {
        note->status = plim_map_put(&note->asked, size, 1, NULL);
    }
}

/* ---- the list ------------------------------------------------------------------------------------------ */

struct size { /* a listed size, and those that are rounded up to it */
    uint64_t bytes;
    double requests;
    double asked; /* bytes of them all */
};

static int by_bytes(const void *a, const void *b)
{
    uint64_t x = ((const struct size *)a)->bytes, y = ((const struct size *)b)->bytes;
    return (x > y) - (x < y);
}

/* What it costs to let the requests of `low` have `high`. */
static double step_to(const struct size *low, const struct size *high)
{
    return low->requests * (double)(high->bytes - low->bytes);
}

/* Size i is given up for the one above it. */
static void give_up(struct size *s, size_t *n, size_t i)
{
    s[i + 1].requests += s[i].requests;
    s[i + 1].asked += s[i].asked;
    memmove(&s[i], &s[i + 1], (*n - i - 1) * sizeof *s);
    --*n;
}

/* So many sizes that pairs cannot be compared: runs of neighbours become one. */
static size_t thin_out(struct size *s, size_t n)
{
    size_t per = (n + MOST_SIZES - 1) / MOST_SIZES, kept = 0;
    for (size_t i = 0; i < n; i += per) {
        struct size joint = {0};
        for (size_t k = i; k < n && k < i + per; k++) {
            joint.bytes = s[k].bytes;
            joint.requests += s[k].requests;
            joint.asked += s[k].asked;
        }
        s[kept++] = joint;
    }
    return kept;
}

static double added_by(const struct size *s, size_t n, double *asked)
{
    double given = 0;
    *asked = 0;
    for (size_t i = 0; i < n; i++) {
        given += s[i].requests * (double)s[i].bytes;
        *asked += s[i].asked;
    }
    return given - *asked;
}

static size_t join(struct size *s, size_t n)
{
    double asked, added = added_by(s, n, &asked);
    while (n > 1) {
        size_t at = 0;
        double least = DEAREST_PAIR;
        for (size_t i = 0; i + 1 < n; i++) {
            double cost = step_to(&s[i], &s[i + 1]);
            if (cost < least) {
                least = cost;
                at = i;
            }
        }
        if (n <= PLIM_ENGINE_SIZES && added + least > MOST_ADDED * asked) {
            break;
        }
        added += least;
        give_up(s, &n, at);
    }
    return n;
}

enum plim_status plim_blocks_list(const struct plim_map *asked, struct plim_engine_rounding *out,
                                  double *added, struct plim_err *err)
{
    size_t n = 0, cursor = 0;
    if (asked->n == 0) {
        return plim__fail(err, PLIM_E_RANGE, "nothing was asked for");
    }
    struct size *s = calloc(asked->n, sizeof *s);
    if (!s) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu sizes", asked->n);
    }
    for (const struct plim_map_slot *slot; (slot = plim_map_next(asked, &cursor)) != NULL;) {
        double requests = (double)slot->value;
        s[n++] = (struct size){slot->key, requests, requests * (double)slot->key};
    }
    qsort(s, n, sizeof *s, by_bytes);
    n = join(s, thin_out(s, n));
    double all, more = added_by(s, n, &all);
    *added = more / all;
    out->n_sizes = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        out->sizes[i] = s[i].bytes;
    }
    free(s);
    return PLIM_OK;
}

/* ---- both runs ----------------------------------------------------------------------------------------- */

static enum plim_status choose(const struct plim_soak_setup *setup, struct note *note,
                               struct plim_blocks_choice *out, struct plim_err *err)
{
    static const struct plim_moving_options stitch = {0};
    struct plim_soak_setup own = *setup;
    own.moving = &stitch;
    own.log = note_one;
    own.log_ctx = note;
    PLIM_TRY(plim_soak_run(&own, &out->result, err));
    if (note->status != PLIM_OK) {
        return plim__fail(err, note->status, "no memory for the sizes of requests");
    }
    if (!out->result.started) {
        return plim__fail(err, PLIM_E_RANGE,
                          "the server does not start on this device, so that it has no sizes");
    }
    out->asked = note->asked.n;
    out->options.rounding.mode = PLIM_ENGINE_POOL;
    PLIM_TRY(plim_blocks_list(&note->asked, &out->options.rounding, &out->added, err));
    own = *setup;
    own.moving = &out->options;
    return plim_soak_run(&own, &out->result, err);
}

enum plim_status plim_blocks_choose(const struct plim_soak_setup *setup,
                                    struct plim_blocks_choice *out, struct plim_err *err)
{
    struct note note = {.status = PLIM_OK};
    *out = (struct plim_blocks_choice){0};
    enum plim_status st = choose(setup, &note, out, err);
    plim_map_fini(&note.asked);
    return st;
}
