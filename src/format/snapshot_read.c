/* SPDX-License-Identifier: Apache-2.0 */
/* The door: wrapping recognised and undone, content read, structure checked. */

#include "format/snapshot_read.h"

#include "format/pickle.h"

#include <stdio.h>

static struct plim_read_limits effective(const struct plim_read_limits *given)
{
    struct plim_read_limits limits = {0};
#define PLIM__X(field, value, meaning)                                                             \
    limits.field = given && given->field ? given->field : (value);
    PLIM_READ_LIMIT_MAP(PLIM__X)
#undef PLIM__X
    return limits;
}

enum plim_status plim_snapshot_read(struct plim_source *source,
                                    const struct plim_read_limits *limits,
                                    struct plim_snapshot *out, struct plim_err *err)
{
    struct plim_window w;
    struct plim_build b;
    struct plim_value root;
    unsigned protocol;
    struct plim_read_limits bounds = effective(limits);
    PLIM_TRY(plim__window_init(&w, source, err));
    enum plim_status st = plim__build_init(&b, &bounds, source->size, err);
    if (st == PLIM_OK) {
        st = plim__pickle_run(&w, &b, &root, &protocol, err);
        if (st == PLIM_OK) {
            st = plim__build_finish(&b, root, out, err);
        }
        plim__build_fini(&b);
    }
    plim__window_fini(&w);
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
