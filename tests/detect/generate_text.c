/* SPDX-License-Identifier: Apache-2.0 */

/* Names of kinds and views, for both families of histories. */

#include "detect/generate.h"

const char *gen_kind_text(enum gen_kind kind)
{
    static const char *const text[] = {
#define GEN__X(name, text, truth) text,
        GEN_KIND_MAP(GEN__X)
#undef GEN__X
    };
    return text[kind];
}

const char *gen_view_text(enum gen_view view)
{
    static const char *const text[] = {
#define GEN__X(name, text) text,
        GEN_VIEW_MAP(GEN__X)
#undef GEN__X
    };
    return text[view];
}
