/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_HISTORY_H
#define PLIM_REPORT_HISTORY_H

/*
 * History for readers: series with their bins, subjects, or events, as text, CSV, JSON lines or one JSON document. The
 * file is read while a monitor writes it. Writers append to a plim_buf, whose failure is sticky. Threads: pure but for
 * the store and the buffer.
 */

#include "report/text.h"
#include "store/store.h"

#define PLIM_HISTORY_POINTS      1000u   /* bins of a series when nothing is said */
#define PLIM_HISTORY_POINTS_MOST 100000u /* that can be asked for */

enum plim_history_what {
    PLIM_HISTORY_SERIES,
    PLIM_HISTORY_SUBJECTS,
    PLIM_HISTORY_EVENTS,
    PLIM_HISTORY_FINDINGS, /* events of findings */
};

enum plim_history_form {
    PLIM_HISTORY_TEXT,
    PLIM_HISTORY_CSV,
    PLIM_HISTORY_JSONL,
    PLIM_HISTORY_JSON,
};

struct plim_history_request {
    const char *path; /* of the file, for the answer */
    enum plim_history_what what;
    enum plim_history_form form;
    uint64_t from_ns, to_ns; /* since 1970; to 0: to the end */
    uint64_t step_ns;        /* 0: by points */
    uint32_t points;         /* most bins of a series */
    size_t most;             /* bytes of the answer; 0: no bound */
    bool has_device;
    uint64_t device; /* index, as labels have it */
    /* Patterns with * and ?; none: processes and engines are left out, figures are those that say most. */
    const char *const *processes; /* name, or pid */
    size_t n_processes;
    const char *const *engines;
    size_t n_engines;
    const char *const *figures;
    size_t n_figures;
    struct plim_text_style style;
};

/** plim_history_what_of(), plim_history_form_of() - by their words; false: it is none of them. */
bool plim_history_what_of(const char *word, enum plim_history_what *out);
bool plim_history_form_of(const char *word, enum plim_history_form *out);

/** plim_history_write() - the answer. Errors: those of the store; PLIM_E_BUDGET more than `most`. */
PLIM_MUST_USE enum plim_status plim_history_write(struct plim_buf *out, struct plim_store *store,
                                                  const struct plim_history_request *request,
                                                  struct plim_err *err);

/** plim_history_time() - "2026-01-31T12:00:00Z", "2026-01-31 12:00" (UTC), "@1769860800", or "90m" (that long before
 * now) in nanoseconds since 1970; false: it is none of these. */
bool plim_history_time(const char *text, uint64_t now_ns, uint64_t *ns);

#endif
