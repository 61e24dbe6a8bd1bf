/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_TRAFFIC_INTERNAL_H
#define PLIM_FORMAT_TRAFFIC_INTERNAL_H

/* Between the parts of the traffic reader: a line becomes cells, cells become an arrival. */

#include "format/traffic.h"

#include "format/window.h"

enum plim__traffic_column {
    PLIM__TRAFFIC_TIME,
    PLIM__TRAFFIC_PROMPT,
    PLIM__TRAFFIC_OUTPUT,
    PLIM__TRAFFIC_SESSION,
    PLIM__TRAFFIC_CHAT,
    PLIM__TRAFFIC_PARENT,
    PLIM__TRAFFIC_TURN,
    PLIM__TRAFFIC_IMAGES,
    PLIM__TRAFFIC_WIDTH,
    PLIM__TRAFFIC_HEIGHT,
    PLIM__TRAFFIC_ADAPTER,
    PLIM__TRAFFIC_HASHES,
    PLIM__TRAFFIC_BLOCK,
    PLIM__TRAFFIC_LOGTYPE,
    PLIM__TRAFFIC_COLUMNS,
    PLIM__TRAFFIC_UNKNOWN = PLIM__TRAFFIC_COLUMNS,
};

/* One cell; a text stands as it was written, without quotes. n == 0 and p == NULL: absent. */
struct plim__traffic_cells {
    struct plim_str cell[PLIM__TRAFFIC_COLUMNS];
};

#define PLIM__TRAFFIC_CSV_MAX 256u /* columns of a CSV file */

struct plim_traffic_reader {
    struct plim_traffic_options options;
    struct plim_window window;
    struct plim_traffic_repairs repairs;
    enum plim_traffic_layout layout;
    bool json;
    char separator;                         /* CSV */
    uint8_t columns[PLIM__TRAFFIC_CSV_MAX]; /* CSV: enum plim__traffic_column of each */
    uint32_t n_columns;
    bool present[PLIM__TRAFFIC_COLUMNS];
    uint64_t unit_ns; /* of numbers in the time column */
    uint32_t hash_block;
    uint64_t line; /* number of the current line, from 1 */
    uint64_t rows; /* lines with something in them, header excluded */
    uint64_t good;
    int64_t last; /* time of the row above, in nanoseconds */
    bool have_last;
    int64_t epoch; /* nanoseconds of the first row, taken from all */
    bool have_epoch;
    struct plim_buf first; /* a first line that is a row already */
    bool first_waits;
    struct plim_buf text;      /* CSV cells with quotes, JSON numbers and texts */
    PLIM_VEC(uint64_t) hashes; /* of the current row */
    struct plim_intern names;  /* sessions */
    struct plim_intern adapters;
    struct plim_map chats; /* hash of a chat's name -> session */
    uint32_t sessions;
};

/** plim__traffic_column() - the column that a header's cell names, or PLIM__TRAFFIC_UNKNOWN; *unit_ns of
 * a time is set when the name says it. */
enum plim__traffic_column plim__traffic_column(struct plim_str name, uint64_t *unit_ns);

/** plim__traffic_csv_header() - learn the columns from the first line. *is_row: it is a row already.
 * Errors: PLIM_E_DATA no columns for prompt and output. */
PLIM_MUST_USE enum plim_status plim__traffic_csv_header(struct plim_traffic_reader *r,
                                                        struct plim_str line, bool *is_row,
                                                        struct plim_err *err);
/** plim__traffic_csv_cells() - cut a row; false: it is broken. Cells are borrowed until the next row. */
bool plim__traffic_csv_cells(struct plim_traffic_reader *r, struct plim_str line,
                             struct plim__traffic_cells *out);

/** plim__traffic_json_first() - learn the layout from the first object. */
PLIM_MUST_USE enum plim_status plim__traffic_json_first(struct plim_traffic_reader *r,
                                                        struct plim_str line, struct plim_err *err);
/** plim__traffic_json_cells() - one object; also fills r->hashes. *good false: it is broken. */
PLIM_MUST_USE enum plim_status plim__traffic_json_cells(struct plim_traffic_reader *r,
                                                        struct plim_str line,
                                                        struct plim__traffic_cells *out, bool *good,
                                                        struct plim_err *err);

/** plim__traffic_time() - a number of units, or a date and time of day, as nanoseconds; false: neither.
 * Numbers are exact to the nanosecond within 292 years of 0. */
bool plim__traffic_time(struct plim_str text, uint64_t unit_ns, int64_t *ns);

/** plim__traffic_count() - "12", "-3", "12.0" as a whole number; false: none, or beyond int64_t. */
bool plim__traffic_count(struct plim_str text, int64_t *count);

#endif
