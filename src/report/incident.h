/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_INCIDENT_H
#define PLIM_REPORT_INCIDENT_H

/*
 * Incidents for people, and lists of them as text and JSON ("plimsoll.incidents/1",
 * docs/schema/incidents.json). Strings come from files that strangers may have written: control
 * characters are dropped.
 */

#include "base/jsonw.h"
#include "incident/bundle.h"
#include "report/text.h"

struct plim_incident_list {
    const char *dir;
    PLIM_VEC(struct plim_bundle) bundles; /* oldest first */
    uint64_t unfinished;                  /* `.part` folders and drops */
    uint64_t unreadable;                  /* what is called an incident and is none */
};

/**
 * plim_incident_list_read() - the incidents in a folder. A folder that is not there has none.
 * @arena: where the texts lie; @out: plim_incident_list_fini(). Errors: PLIM_E_NOINPUT, PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_incident_list_read(const char *dir, struct plim_arena *arena,
                                                       struct plim_incident_list *out,
                                                       struct plim_err *err);
void plim_incident_list_fini(struct plim_incident_list *list);

/** plim_text_incident() - one incident: verdict, what is in it, notes, what to do next. */
void plim_text_incident(struct plim_buf *out, const struct plim_bundle *bundle,
                        const struct plim_text_style *style);

/** plim_text_incidents() - one line for each. */
void plim_text_incidents(struct plim_buf *out, const struct plim_incident_list *list,
                         const struct plim_text_style *style);
void plim_json_incidents(struct plim_jsonw *w, const struct plim_incident_list *list);

#endif
