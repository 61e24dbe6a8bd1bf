/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_OBSERVE_ENGINE_TEXT_H
#define PLIM_OBSERVE_ENGINE_TEXT_H

/*
 * Reading what a server says at /metrics: Prometheus' text format 0.0.4 and OpenMetrics 1.0, as it comes.
 *
 *   sample   one line: a name, labels, a number
 *
 * The text is fed in pieces of any size and never kept: memory is one line. The source may be hostile or cut
 * off: a line that is no sample is counted and skipped, so that one bad line costs one figure. Comments
 * (# HELP, # TYPE, # UNIT, # EOF) and exemplars behind a number are skipped; a time behind a number is
 * skipped too, as a page tells what is now. Names in quotes inside the braces (Prometheus 3) are read.
 * Source: prometheus.io/docs/instrumenting/exposition_formats, OpenMetrics 1.0 section "Text format".
 * Threads: a reader belongs to one thread.
 */

#include "base/str.h"

#define PLIM_ENGINE_TEXT_LINE                                                                      \
    16384 /* bytes of the longest line that is read; longer ones are skipped */
#define PLIM_ENGINE_TEXT_LABELS                                                                    \
    64 /* most labels of a sample: the widest known, vLLM's
                                         cache_config_info, has about 40 */

struct plim_engine_label {
    struct plim_str name, value; /* borrowed for the visit; the value with its escapes undone */
};

struct plim_engine_sample {
    struct plim_str name; /* borrowed for the visit */
    size_t labels;
    struct plim_engine_label label[PLIM_ENGINE_TEXT_LABELS];
    double value; /* NaN and infinities as they are written */
};

struct plim_engine_text {
    void (*visit)(void *self, const struct plim_engine_sample *sample);
    void *self;
    uint64_t samples, bad; /* lines that were samples, and lines that were nothing known */
    bool skipping;         /* the rest of a line that is too long */
    size_t n;              /* bytes in line */
    char line[PLIM_ENGINE_TEXT_LINE];
    struct plim_engine_sample sample;
};

/** plim_engine_text_init() - ready for the first byte of a page. */
void plim_engine_text_init(struct plim_engine_text *text,
                           void (*visit)(void *self, const struct plim_engine_sample *sample),
                           void *self);

/** plim_engine_text_feed() - the next bytes of the page. Cost: one pass. */
void plim_engine_text_feed(struct plim_engine_text *text, struct plim_str bytes);

/** plim_engine_text_end() - the page is over. @whole: it was not cut off, so that a last line without its
 * newline counts. */
void plim_engine_text_end(struct plim_engine_text *text, bool whole);

/** plim_engine_label() - the value of a label, or an empty text. */
struct plim_str plim_engine_label(const struct plim_engine_sample *sample, struct plim_str name);

#endif
