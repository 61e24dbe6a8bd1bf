/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_HISTORY_INT_H
#define PLIM_REPORT_HISTORY_INT_H

/* A form of history: what is called for each piece of the answer, in the order of the answer. */

#include "base/jsonw.h"
#include "report/history.h"

#include <jansson.h>

struct plim__history {
    struct plim_buf *out;
    const struct plim_history_request *request;
    struct plim_jsonw w; /* of the JSON document */
    const char *subject; /* text form: the subject that was shown last */
    uint64_t pieces;     /* so far */
};

struct plim__history_form {
    void (*begin)(struct plim__history *h);
    void (*subject)(struct plim__history *h, const struct plim_store_subject *s);
    void (*series)(struct plim__history *h, const struct plim_store_subject *s, const char *figure,
                   const struct plim_store_answer *answer);
    /* @s: NULL: about none, or it is gone */
    void (*event)(struct plim__history *h, const struct plim_store_event *event,
                  const struct plim_store_subject *s);
    void (*end)(struct plim__history *h);
};

extern const struct plim__history_form plim__history_text, plim__history_csv, plim__history_jsonl,
    plim__history_json;

#endif
