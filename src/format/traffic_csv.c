/* SPDX-License-Identifier: Apache-2.0 */
/* CSV of traffic: the header says which column is what; cells may be quoted as RFC 4180 says, without
 * line breaks inside. */

#include "format/traffic_internal.h"

#include "base/num.h"

/* The separator that cuts the header into most cells. */
static char separator_of(struct plim_str line)
{
    static const char candidates[] = {',', '\t', ';', '|'};
    char best = ',';
    size_t most = 0;
    for (size_t i = 0; i < sizeof candidates; i++) {
        size_t n = 0;
        for (size_t k = 0; k < line.n; k++) {
            n += line.p[k] == candidates[i];
        }
        if (n > most) {
            most = n;
            best = candidates[i];
        }
    }
    return best;
}

/* The cell that starts at *at, unquoted into r->text when it has quotes; *at moves behind its separator,
 * or to line.n + 1 behind the last. False: a quote that does not end. */
static bool next_cell(struct plim_traffic_reader *r, struct plim_str line, size_t *at,
                      struct plim_str *cell, size_t *stored)
{
    size_t from = *at, i = from;
    *stored = SIZE_MAX;
    if (i < line.n && line.p[i] == '"') {
        *stored = r->text.n;
        for (i++; i < line.n; i++) {
            if (line.p[i] == '"' && !(i + 1 < line.n && line.p[i + 1] == '"')) {
                break;
            }
            i += line.p[i] == '"' ? 1 : 0;
            plim_buf_char(&r->text, line.p[i]);
        }
        if (i >= line.n) {
            return false;
        }
        *cell = (struct plim_str){NULL, r->text.n - *stored};
        i++;
        *at = i + 1;
        return i == line.n || line.p[i] == r->separator;
    }
    while (i < line.n && line.p[i] != r->separator) {
        i++;
    }
    *cell = (struct plim_str){line.p + from, i - from};
    *at = i + 1;
    return true;
}

bool plim__traffic_csv_cells(struct plim_traffic_reader *r, struct plim_str line,
                             struct plim__traffic_cells *out)
{
    size_t at = 0;
    size_t stored[PLIM__TRAFFIC_COLUMNS];
    *out = (struct plim__traffic_cells){0};
    memset(stored, 0xff, sizeof stored);
    plim_buf_reset(&r->text);
    for (uint32_t i = 0; i < r->n_columns; i++) {
        struct plim_str cell;
        size_t where;
        if (at > line.n || !next_cell(r, line, &at, &cell, &where)) {
            return false;
        }
        if (r->columns[i] < PLIM__TRAFFIC_COLUMNS) {
            out->cell[r->columns[i]] = cell;
            stored[r->columns[i]] = where;
        }
    }
    for (size_t c = 0; c < PLIM__TRAFFIC_COLUMNS; c++) {
        if (stored[c] != SIZE_MAX) {
            out->cell[c].p = plim_buf_str(&r->text).p + stored[c];
        }
    }
    return !r->text.failed && at == line.n + 1;
}

/* No header but a row of three numbers, or of two: time, prompt, output. */
static bool is_headless(struct plim_traffic_reader *r, struct plim_str line)
{
    size_t at = 0;
    uint32_t n = 0;
    for (; at <= line.n; n++) {
        struct plim_str cell;
        size_t where;
        int64_t value;
        bool read = next_cell(r, line, &at, &cell, &where) && where == SIZE_MAX;
        if (!read || n >= 3 ||
            !(n == 0 ? plim__traffic_time(cell, 1, &value) : plim__traffic_count(cell, &value))) {
            return false;
        }
    }
    r->n_columns = n;
    r->columns[0] = PLIM__TRAFFIC_TIME;
    r->columns[1] = PLIM__TRAFFIC_PROMPT;
    r->columns[2] = PLIM__TRAFFIC_OUTPUT;
    return n == 3;
}

static enum plim_status learn_columns(struct plim_traffic_reader *r, struct plim_str line,
                                      struct plim_err *err)
{
    size_t at = 0;
    while (at <= line.n) {
        struct plim_str cell;
        size_t stored;
        uint64_t unit = 0;
        if (r->n_columns == PLIM__TRAFFIC_CSV_MAX || !next_cell(r, line, &at, &cell, &stored)) {
            return plim__fail(err, PLIM_E_DATA, "the header of the CSV file cannot be read");
        }
        cell.p = stored == SIZE_MAX ? cell.p : plim_buf_str(&r->text).p + stored;
        enum plim__traffic_column column = plim__traffic_column(cell, &unit);
        if (column < PLIM__TRAFFIC_COLUMNS && r->present[column]) {
            column = PLIM__TRAFFIC_UNKNOWN; /* the first of two names for one thing counts */
        }
        if (column < PLIM__TRAFFIC_COLUMNS) {
            r->present[column] = true;
        }
        r->unit_ns = column == PLIM__TRAFFIC_TIME && unit > 0 ? unit : r->unit_ns;
        r->columns[r->n_columns++] = (uint8_t)column;
    }
    return PLIM_OK;
}

enum plim_status plim__traffic_csv_header(struct plim_traffic_reader *r, struct plim_str line,
                                          bool *is_row, struct plim_err *err)
{
    r->separator = separator_of(line);
    r->unit_ns = 1000000000;
    plim_buf_reset(&r->text);
    *is_row = is_headless(r, line);
    if (*is_row) {
        r->present[PLIM__TRAFFIC_TIME] = true;
        return PLIM_OK;
    }
    r->n_columns = 0;
    PLIM_TRY(learn_columns(r, line, err));
    PLIM_TRY(plim_buf_status(&r->text, err));
    bool tokens = r->present[PLIM__TRAFFIC_PROMPT] && r->present[PLIM__TRAFFIC_OUTPUT];
    if (!tokens && !r->present[PLIM__TRAFFIC_IMAGES] && !r->present[PLIM__TRAFFIC_WIDTH]) {
        plim__fail(err, PLIM_E_DATA, "no columns for prompt and output tokens in the header");
        plim__err_hint(err, "a plain file begins with: time,prompt,output");
        return PLIM_E_DATA;
    }
    if (r->present[PLIM__TRAFFIC_LOGTYPE]) {
        r->layout = PLIM_TRAFFIC_BURSTGPT;
    } else if (plim_str_starts(line, PLIM_STR("TIMESTAMP,"))) {
        r->layout = PLIM_TRAFFIC_AZURE;
    }
    return PLIM_OK;
}
