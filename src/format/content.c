/* SPDX-License-Identifier: Apache-2.0 */
/* Wrappings one inside the other; see content.h. */

#include "format/content.h"

#include "format/decode.h"

#include <stdio.h>
#include <stdlib.h>

static enum plim_status peek_read(void *self, void *dst, size_t n, size_t *got,
                                  struct plim_err *err)
{
    struct plim_peek *peek = self;
    if (peek->at == peek->n) {
        return peek->below->read(peek->below->self, dst, n, got, err);
    }
    *got = n < peek->n - peek->at ? n : peek->n - peek->at;
    memcpy(dst, peek->head + peek->at, *got);
    peek->at += *got;
    return PLIM_OK;
}

static enum plim_status peek_fill(struct plim_peek *peek, struct plim_source *below,
                                  struct plim_err *err)
{
    size_t got = 1;
    peek->below = below;
    while (got > 0 && peek->n < sizeof(peek->head)) {
        PLIM_TRY(below->read(below->self, peek->head + peek->n, sizeof(peek->head) - peek->n, &got,
                             err));
        peek->n += got;
    }
    return PLIM_OK;
}

/* Look at the source below; content when it is plain, else a decoder for the next round. */
static enum plim_status look(struct plim_content *c, struct plim_source *below,
                             struct plim_err *err)
{
    static enum plim_status (*const decoders[])(struct plim_source *, struct plim_source *,
                                                struct plim_err *) = {
        [PLIM_CONTENT_GZIP] = plim__decode_gzip,
        [PLIM_CONTENT_ZSTD] = plim__decode_zstd,
        [PLIM_CONTENT_XZ] = plim__decode_xz,
        [PLIM_CONTENT_HTML] = plim__decode_html,
    };
    static const char *const names[] = {
        [PLIM_CONTENT_GZIP] = "gzip, ",
        [PLIM_CONTENT_ZSTD] = "zstd, ",
        [PLIM_CONTENT_XZ] = "xz, ",
        [PLIM_CONTENT_HTML] = "HTML, ",
    };
    struct plim_peek *peek = &c->peeks[c->wrappings];
    struct plim_source *view = &c->views[c->wrappings];
    PLIM_TRY(peek_fill(peek, below, err));
    *view = (struct plim_source){.read = peek_read, .self = peek, .size = below->size};
    memcpy(view->name, below->name, sizeof(view->name));
    c->kind = plim__magic(peek->head, peek->n, err);
    if (c->kind == PLIM_CONTENT_OTHER) {
        return PLIM_E_DATA;
    }
    if (c->kind == PLIM_CONTENT_PICKLE || c->kind == PLIM_CONTENT_JSON ||
        c->kind == PLIM_CONTENT_TRACE) {
        c->source = view;
        return PLIM_OK;
    }
    if (c->wrappings >= PLIM_WRAPPINGS) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "more than %u wrappings around the snapshot",
                          PLIM_WRAPPINGS);
    }
    PLIM_TRY(decoders[c->kind](view, &c->decoders[c->wrappings], err));
    c->wrappings++;
    size_t used = strlen(c->names);
    snprintf(c->names + used, sizeof(c->names) - used, "%s", names[c->kind]);
    return PLIM_OK;
}

enum plim_status plim__content_open(struct plim_content *c, struct plim_source *raw,
                                    struct plim_err *err)
{
    *c = (struct plim_content){0};
    c->peeks = calloc(PLIM_WRAPPINGS + 1, sizeof(*c->peeks));
    if (!c->peeks) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory to look into the input");
    }
    enum plim_status st = PLIM_OK;
    while (st == PLIM_OK && !c->source) {
        st = look(c, c->wrappings > 0 ? &c->decoders[c->wrappings - 1] : raw, err);
    }
    if (st != PLIM_OK) {
        plim__content_close(c);
    }
    return st;
}

void plim__content_close(struct plim_content *c)
{
    while (c->wrappings > 0) {
        plim_source_close(&c->decoders[--c->wrappings]);
    }
    free(c->peeks);
    c->peeks = NULL;
    c->source = NULL;
}
