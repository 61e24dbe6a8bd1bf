/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_HTML_PARTS_H
#define PLIM_REPORT_HTML_PARTS_H

/*
 * The static pieces that a page is put together from: sections, sortable tables, cells, a chart.
 * They need no script; web/tables.js makes each table of the class `sortable` sortable by its heads
 * and adds "Copy as CSV", which takes the raw number of a cell (data-v) where there is one.
 *
 * A verb with a page of its own writes a function of these pieces and hands it to the page as a
 * plim_html_part (report/html.h):
 *
 *     static void settings(struct plim_buf *out, const void *view)
 *     {
 *         static const char *const heads[] = {"peak", "settings"};
 *         plim_html_section_open(out, "tune", "Settings, replayed");
 *         plim_html_table_open(out, "Settings", NULL, heads, PLIM_COUNT_OF(heads));
 *         plim_html_row_open(out, NULL);
 *         plim_html_cell_bytes(out, peak);
 *         plim_html_cell_text(out, conf);
 *         plim_html_row_close(out);
 *         plim_html_table_close(out);
 *         plim_html_section_close(out);
 *     }
 *
 * Ids, titles, notes, heads, labels and classes are literals of the program and are written as they
 * are; every other text is escaped. Errors stick to the buffer. Threads: pure but for the buffer.
 */

#include "base/buf.h"

/** plim_html_text() - text as HTML text or attribute value: no markup, no control characters. */
void plim_html_text(struct plim_buf *out, struct plim_str text);

/** plim_html_say() - the same of a C string; nothing for NULL. */
void plim_html_say(struct plim_buf *out, const char *text);

/** plim_html_element() - <name>text</name>. */
void plim_html_element(struct plim_buf *out, const char *name, const char *text);

/** plim_html_section_open() - a section with its heading, "h-<id>". */
void plim_html_section_open(struct plim_buf *out, const char *id, const char *title);
void plim_html_section_close(struct plim_buf *out);

/** plim_html_note() - a paragraph in small, faint letters. */
void plim_html_note(struct plim_buf *out, const char *text);

/** plim_html_table_open() - a sortable table that scrolls by itself when it is too wide. @label:
 * for screen readers. */
void plim_html_table_open(struct plim_buf *out, const char *label, const char *const *heads,
                          size_t n);
void plim_html_table_close(struct plim_buf *out);

/** plim_html_row_open() - @kind: class of the row, or NULL. */
void plim_html_row_open(struct plim_buf *out, const char *kind);
void plim_html_row_close(struct plim_buf *out);

/** plim_html_cell_bytes()... - one cell. Unknown numbers are an empty cell, which sorts first. */
void plim_html_cell_bytes(struct plim_buf *out, uint64_t bytes);
void plim_html_cell_change(struct plim_buf *out, uint64_t before, uint64_t after); /* +1.5 GiB */
void plim_html_cell_count(struct plim_buf *out, uint64_t n);
void plim_html_cell_text(struct plim_buf *out, const char *text);
void plim_html_cell_none(struct plim_buf *out);

/* A line of a chart; values in bytes. */
struct plim_html_line {
    const char *label; /* escaped */
    const char *kind;  /* class of the line: its colour in web/style.css */
    const uint64_t *x; /* [n] ascending, the unit is the caller's */
    const uint64_t *y; /* [n] bytes */
    size_t n;
};

/**
 * plim_html_chart() - lines of bytes over anything, on one scale, with a legend. Nothing when there
 * is nothing above 0.
 * @x_label: what x counts.
 */
void plim_html_chart(struct plim_buf *out, const char *label, const char *x_label,
                     const struct plim_html_line *lines, size_t n);

#endif
