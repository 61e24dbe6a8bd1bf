/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_TRAFFIC_H
#define PLIM_FORMAT_TRAFFIC_H

/*
 * Traffic files: one arrival for each line, CSV with a header or JSON lines, by a pull reader that holds
 * one line at a time, or read whole.
 *
 *   layout   which columns there are and what they mean; found from the header or the first object
 *   repair   something in a row that was corrected, or a row left out; counted by kind, with the line of
 *            the first. With `strict` the first one is an error instead
 *
 * Layouts (sources: the files themselves and their repositories' descriptions):
 *   azure     CSV TIMESTAMP,ContextTokens,GeneratedTokens[,NumImages]; date and time of day
 *   burstgpt  CSV Timestamp[,Session ID,Elapsed time],Model,Request tokens,Response tokens,...; seconds;
 *             0 response tokens mark a failed request, which is left out
 *   mooncake  JSON lines timestamp (ms), input_length, output_length, hash_ids (512 tokens each)
 *   bailian   JSON lines chat_id, parent_chat_id, timestamp (s), ..., hash_ids (16 tokens each); a chat
 *             belongs to the session of its parent
 *   plain     CSV or JSON lines with any of the column names in traffic_columns.def, case and
 *             punctuation aside; a CSV without header is time, prompt, output
 * Plain times are seconds unless the name ends in _ms, _us or _ns, or `unit_ns` says otherwise.
 * Times of day without a zone count as UTC. Files named .gz, .zst or .xz are decompressed.
 *
 * What is repaired: rows whose cells are no numbers, lack a column or have a negative count are left
 * out; zero tokens count as one; a time below the one before is kept, and plim_traffic_read() sorts.
 * Not taken for traffic (PLIM_E_DATA): no line that can be read, or more than half of the first 1000
 * broken.
 * Threads: one at a time for a reader.
 */

#include "base/file.h"
#include "heap/traffic.h"

#define PLIM_TRAFFIC_LAYOUT_MAP(X)                                                                 \
    X(PLAIN, "plain")                                                                              \
    X(AZURE, "azure")                                                                              \
    X(BURSTGPT, "burstgpt")                                                                        \
    X(MOONCAKE, "mooncake")                                                                        \
    X(BAILIAN, "bailian")

enum plim_traffic_layout {
#define PLIM__X(name, text) PLIM_TRAFFIC_##name,
    PLIM_TRAFFIC_LAYOUT_MAP(PLIM__X)
#undef PLIM__X
    PLIM_TRAFFIC_LAYOUT_COUNT
};

/* X(field, text for people) */
#define PLIM_TRAFFIC_REPAIR_MAP(X)                                                                 \
    X(broken, "rows that cannot be read; left out")                                                \
    X(negative, "rows with a negative count; left out")                                            \
    X(huge, "rows with more than 16,777,216 tokens or 65,535 images; left out")                    \
    X(failed, "requests that failed when they were recorded; left out")                            \
    X(zero_prompts, "empty prompts; counted as one token")                                         \
    X(zero_outputs, "empty outputs; counted as one token")                                         \
    X(backwards, "rows whose time lies before that of the row above; sorted")

struct plim_traffic_repair {
    uint64_t n;
    uint64_t first_line; /* from 1 */
};

struct plim_traffic_repairs {
#define PLIM__X(field, text) struct plim_traffic_repair field; /* see PLIM_TRAFFIC_REPAIR_MAP */
    PLIM_TRAFFIC_REPAIR_MAP(PLIM__X)
#undef PLIM__X
};

struct plim_traffic_options {
    bool strict;      /* the first repair is an error */
    uint64_t unit_ns; /* of numbers in the time column; 0: as the layout or the name says */
    uint64_t most;    /* arrivals at most; 0: all */
};

#define PLIM_TRAFFIC_TOKENS_MAX (UINT64_C(1) << 24)
#define PLIM_TRAFFIC_LINE_MAX   (16u << 20) /* bytes of one line */

struct plim_traffic_reader;

/**
 * plim_traffic_open() - a reader over a source, which is borrowed until plim_traffic_close().
 * @options: nullable. Reads up to the first row.
 * Errors: PLIM_E_DATA no traffic (with what a header may look like), PLIM_E_NOMEM, those of the source.
 */
PLIM_MUST_USE enum plim_status plim_traffic_open(struct plim_source *source,
                                                 const struct plim_traffic_options *options,
                                                 struct plim_traffic_reader **out,
                                                 struct plim_err *err);
void plim_traffic_close(struct plim_traffic_reader *reader);

/**
 * plim_traffic_next() - the next arrival, in the order of the file, with its time as written.
 * @hashes: (nullable) receives its hashes, borrowed until the next call; first_hash of *out is 0.
 * @more: false at the end; *out is then untouched.
 * Errors: with `strict` PLIM_E_DATA with the line; PLIM_E_BUDGET a line of more than 16 MiB;
 * PLIM_E_NOMEM; those of the source. Cost: linear in the bytes.
 */
PLIM_MUST_USE enum plim_status plim_traffic_next(struct plim_traffic_reader *reader,
                                                 struct plim_arrival *out, const uint64_t **hashes,
                                                 bool *more, struct plim_err *err);

/** What was found so far; borrowed. */
const struct plim_traffic_repairs *plim_traffic_repairs(const struct plim_traffic_reader *reader);
enum plim_traffic_layout plim_traffic_layout(const struct plim_traffic_reader *reader);
uint32_t plim_traffic_hash_block(const struct plim_traffic_reader *reader); /* tokens; 0: none */
bool plim_traffic_timed(const struct plim_traffic_reader *reader);

const char *plim_traffic_layout_text(enum plim_traffic_layout layout);

/**
 * plim_traffic_read() - a whole file, sorted. "-" is standard input.
 * @repairs, @layout: (nullable) what was found.
 * Errors: those above, and PLIM_E_NOINPUT. Memory: 40 bytes for each arrival, 8 for each hash, and the
 * names of sessions while reading.
 */
PLIM_MUST_USE enum plim_status
plim_traffic_read(const char *path, const struct plim_traffic_options *options,
                  struct plim_traffic *out, struct plim_traffic_repairs *repairs,
                  enum plim_traffic_layout *layout, struct plim_err *err);

/** plim_traffic_collect() - the same from a source that is open. */
PLIM_MUST_USE enum plim_status
plim_traffic_collect(struct plim_source *source, const struct plim_traffic_options *options,
                     struct plim_traffic *out, struct plim_traffic_repairs *repairs,
                     enum plim_traffic_layout *layout, struct plim_err *err);

#endif
