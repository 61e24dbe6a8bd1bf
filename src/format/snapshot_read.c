/* SPDX-License-Identifier: Apache-2.0 */
/* The door: wrapping recognised and undone, content read, structure checked. */

#include "format/snapshot_read.h"

#include "base/num.h"
#include "format/content.h"
#include "format/json_read.h"
#include "format/pickle.h"
#include "format/trace_build.h"
#include "heap/check.h"

#include <stdio.h>

#define MAX_NESTING 10000u /* whatever is asked for: some walks recurse */

static struct plim_read_limits effective(const struct plim_read_limits *given)
{
    struct plim_read_limits limits = {0};
#define PLIM__X(field, value, meaning)                                                             \
    limits.field = given && given->field ? given->field : (value);
    PLIM_READ_LIMIT_MAP(PLIM__X)
#undef PLIM__X
    limits.nesting = plim_min_u64(limits.nesting, MAX_NESTING);
    return limits;
}

/* Read what is left, so that checksums of wrappings are verified. *extra counts bytes that are not NUL;
 * the viewer's pages append NULs. */
static enum plim_status drain(struct plim_window *w, uint64_t *extra, struct plim_err *err)
{
    *extra = 0;
    for (;;) {
        for (; w->at < w->end; w->at++) {
            *extra += w->buf[w->at] != 0 && w->buf[w->at] != '\n';
        }
        if (w->eof) {
            return PLIM_OK;
        }
        PLIM_TRY(plim__window_fill(w, err));
    }
}

/* The window's content into the builder, and the snapshot out of it. */
static enum plim_status read_content(struct plim_window *w, const struct plim_content *c,
                                     struct plim_build *b, struct plim_snapshot *out,
                                     struct plim_err *err)
{
    struct plim_value root;
    unsigned protocol = 0;
    uint64_t end, extra;
    if (c->kind == PLIM_CONTENT_JSON) {
        PLIM_TRY(plim__json_run(w, b, &root, err));
        snprintf(b->snap.container, sizeof(b->snap.container), "%sJSON", c->names);
    } else {
        PLIM_TRY(plim__pickle_run(w, b, &root, &protocol, err));
        snprintf(b->snap.container, sizeof(b->snap.container), "%spickle protocol %u", c->names,
                 protocol);
    }
    end = plim__window_pos(w);
    PLIM_TRY(drain(w, &extra, err));
    b->snap.source_bytes = plim__window_pos(w);
    if (extra > 0) {
        plim_snapshot_finding(&b->snap, 0, "file",
                              "%llu bytes behind the snapshot's end at %llu are ignored",
                              (unsigned long long)extra, (unsigned long long)end);
    }
    return plim__build_finish(b, root, out, err);
}

static enum plim_status read_window(struct plim_content *c, const struct plim_read_limits *limits,
                                    struct plim_snapshot *out, struct plim_err *err)
{
    struct plim_window w;
    struct plim_build b;
    PLIM_TRY(plim__window_init(&w, c->source, err));
    enum plim_status st =
        plim__build_init(&b, limits, c->wrappings == 0 ? c->source->size : 0, err);
    if (st == PLIM_OK) {
        st = read_content(&w, c, &b, out, err);
        plim__build_fini(&b);
    }
    plim__window_fini(&w);
    return st;
}

enum plim_status plim_snapshot_read(struct plim_source *source,
                                    const struct plim_read_limits *limits,
                                    struct plim_snapshot *out, struct plim_err *err)
{
    struct plim_content content;
    struct plim_read_limits bounds = effective(limits);
    enum plim_status st = plim__content_open(&content, source, err);
    if (st == PLIM_OK) {
        st = content.kind == PLIM_CONTENT_TRACE
                 ? plim_trace_read(content.source, &bounds, NULL, out, err)
                 : read_window(&content, &bounds, out, err);
        if (st != PLIM_OK && content.wrappings > 0 && err && err->pos != PLIM_POS_NONE) {
            plim__err_where(err, "%s: inside %.*s: byte", source->name,
                            (int)strlen(content.names) - 2, content.names);
        }
        plim__content_close(&content);
    }
    if (st != PLIM_OK && err && !err->where[0]) {
        bool at = err->pos != PLIM_POS_NONE;
        plim__err_where(err, "%s%s", source->name, at ? ": byte" : "");
    }
    if (st == PLIM_OK) {
        plim_snapshot_check(out);
    }
    return st;
}

enum plim_status plim_snapshot_read_file(const char *path, const struct plim_read_limits *limits,
                                         struct plim_snapshot *out, struct plim_err *err)
{
    struct plim_source source;
    PLIM_TRY(plim_source_open(path, &source, err));
    enum plim_status st = plim_snapshot_read(&source, limits, out, err);
    plim_source_close(&source);
    return st;
}
