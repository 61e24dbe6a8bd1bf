/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_READING_H
#define PLIM_TESTS_READING_H

/* Reading a snapshot from bytes in memory, for tests. */

#include "format/snapshot_read.h"

static inline enum plim_status read_snapshot(struct plim_str bytes, struct plim_snapshot *out,
                                             struct plim_err *err)
{
    struct plim_source_bytes state;
    struct plim_source source = plim_source_bytes(&state, bytes);
    plim_err_clear(err);
    enum plim_status st = plim_snapshot_read(&source, NULL, out, err);
    plim_source_close(&source);
    return st;
}

/* The status alone. */
static inline enum plim_status status_of(struct plim_str bytes, struct plim_err *err)
{
    struct plim_snapshot snapshot;
    enum plim_status st = read_snapshot(bytes, &snapshot, err);
    if (st == PLIM_OK) {
        plim_snapshot_fini(&snapshot);
    }
    return st;
}

/* The text of finding i, "" beyond the last. */
static inline const char *finding_text(const struct plim_snapshot *s, size_t i)
{
    return i < s->findings.n ? plim_intern_str(&s->strings, s->findings.items[i].text).p : "";
}

static inline const char *finding_where(const struct plim_snapshot *s, size_t i)
{
    return i < s->findings.n ? plim_intern_str(&s->strings, s->findings.items[i].where).p : "";
}

#endif
