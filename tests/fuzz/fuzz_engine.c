/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: what an engine says at /metrics. Whatever the bytes are, and however they come in pieces, the same
 * figures come out, and each is a number that can be.
 */

#include "observe/engine_page.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_page(struct plim_engine_page *page, struct plim_str text, size_t step,
                      struct plim_engine_list *out)
{
    out->n = 0;
    plim_engine_page_init(page);
    while (text.n > 0) {
        size_t n = text.n < step ? text.n : step;
        plim_engine_page_feed(page, (struct plim_str){text.p, n});
        text = plim_str_skip(text, n);
    }
    if (plim_engine_page_end(page, true, out, NULL) != PLIM_OK) {
        out->n = 0;
    }
}

static bool same(const struct plim_engine_now *a, const struct plim_engine_now *b)
{
    return plim_engine_same(a, b) && a->valid == b->valid &&
           memcmp(a->figure, b->figure, sizeof(a->figure)) == 0;
}

static void check(const struct plim_engine_now *e)
{
    for (size_t f = 0; f < PLIM_ENGINE_FIGURES; f++) {
        if ((e->valid >> f & 1) != 0 && !(e->figure[f] >= 0 && e->figure[f] < 1e18)) {
            abort();
        }
    }
    if (plim_engine_has(e, PLIM_ENGINE_FIGURE_KV_USAGE) &&
        e->figure[PLIM_ENGINE_FIGURE_KV_USAGE] > 1) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct plim_engine_page page;
    struct plim_engine_list whole = {0}, pieces = {0};
    struct plim_str text = {(const char *)data, size};
    read_page(&page, text, size + 1, &whole);
    read_page(&page, text, 3, &pieces);
    if (whole.n != pieces.n) {
        abort();
    }
    for (size_t i = 0; i < whole.n; i++) {
        check(&whole.items[i]);
        if (!same(&whole.items[i], &pieces.items[i])) {
            abort();
        }
    }
    plim_engine_page_fini(&page);
    plim_vec_fini(&whole);
    plim_vec_fini(&pieces);
    return 0;
}
