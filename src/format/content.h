/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_CONTENT_H
#define PLIM_FORMAT_CONTENT_H

/*
 * From a source of any wrapping to one of plain content: looks at the first bytes, puts a decoder on
 * top, and looks again, up to PLIM_WRAPPINGS times.
 * Threads: one at a time.
 */

#include "base/file.h"
#include "format/magic.h"

#define PLIM_WRAPPINGS 4u

/* A source whose first bytes were read to look at them and are handed out again. */
struct plim_peek {
    struct plim_source *below; /* borrowed */
    size_t at;
    size_t n;
    uint8_t head[PLIM_HEAD_BYTES];
};

struct plim_content {
    struct plim_peek *peeks;                      /* owned, [PLIM_WRAPPINGS + 1] */
    struct plim_source views[PLIM_WRAPPINGS + 1]; /* views[i] reads peeks[i] */
    struct plim_source decoders[PLIM_WRAPPINGS];  /* owned, [wrappings] */
    unsigned wrappings;
    struct plim_source *source;  /* the plain content; in `views` */
    enum plim_content_kind kind; /* PICKLE, JSON or TRACE */
    char names[40];              /* "gzip, " for each wrapping, outermost first */
};

/** plim__content_open() - *c stays where it is until plim__content_close(); `raw` is borrowed.
 * Errors: PLIM_E_DATA it is something else (named); PLIM_E_UNSUPPORTED too many wrappings; PLIM_E_NOMEM;
 * those of the source. Nothing is left to close then. */
PLIM_MUST_USE enum plim_status plim__content_open(struct plim_content *c, struct plim_source *raw,
                                                  struct plim_err *err);
void plim__content_close(struct plim_content *c);

#endif
