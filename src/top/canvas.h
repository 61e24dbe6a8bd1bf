/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TOP_CANVAS_H
#define PLIM_TOP_CANVAS_H

/*
 * A screen of characters with styles, before any terminal: what layouts draw on, tests compare, and ncurses or plain
 * text shows.
 *
 *   cell     one place: a character and a style. The second place of a wide character holds 0
 *
 * Whatever is drawn outside the canvas is cut, so that no layout asks for the size first. The width of characters is
 * decided here, not by the locale.
 * Threads: plain data.
 */

#include "base/buf.h"
#include "base/vec.h"

/* X(NAME, foreground colour or -1, attribute): colours are the terminal's eight. */
#define PLIM_TOP_STYLE_MAP(X)                                                                      \
    X(PLAIN, -1, NORMAL)                                                                           \
    X(DIM, -1, DIM)                                                                                \
    X(BOLD, -1, BOLD)                                                                              \
    X(TITLE, -1, REVERSE)                                                                          \
    X(SELECTED, 6, REVERSE)                                                                        \
    X(KEY, 6, BOLD)                                                                                \
    X(GOOD, 2, NORMAL)                                                                             \
    X(WARN, 3, BOLD)                                                                               \
    X(BAD, 1, BOLD)                                                                                \
    X(LIVE, 2, NORMAL)                                                                             \
    X(STRANDED, 1, NORMAL)                                                                         \
    X(RELEASABLE, 3, NORMAL)                                                                       \
    X(OUTSIDE, 5, NORMAL)                                                                          \
    X(OTHERS, 4, NORMAL)                                                                           \
    X(TREND, 6, NORMAL)

enum plim_top_style {
#define PLIM__X(name, color, attribute) PLIM_TOP_##name,
    PLIM_TOP_STYLE_MAP(PLIM__X)
#undef PLIM__X
    PLIM_TOP_STYLES
};

struct plim_top_cell {
    uint32_t ch; /* code point; 0: the right half of the one before */
    uint8_t style;
};

struct plim_top_canvas {
    unsigned width, height;
    bool ascii;                           /* nothing but ASCII is drawn */
    PLIM_VEC(struct plim_top_cell) cells; /* [height * width], row by row */
};

/** plim_top_canvas_size() - all blank, of this size. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_top_canvas_size(struct plim_top_canvas *canvas, unsigned width,
                                                    unsigned height, struct plim_err *err);
void plim_top_canvas_fini(struct plim_top_canvas *canvas);

/** plim_top_put() - UTF-8 text from (x, y) on, cut at `limit` columns and at the edge. Bytes that are no text become
 * '?', as does in an ASCII canvas what is not ASCII. Returns the column behind it. */
unsigned plim_top_put(struct plim_top_canvas *canvas, unsigned x, unsigned y, unsigned limit,
                      enum plim_top_style style, const char *text);

/** plim_top_putf() - the same with a format, to the edge. */
unsigned plim_top_putf(struct plim_top_canvas *canvas, unsigned x, unsigned y,
                       enum plim_top_style style, const char *fmt, ...) PLIM_PRINTF(5, 6);

/** plim_top_right() - text that ends before column `end`; cut on its right when it is longer than `width`. */
void plim_top_right(struct plim_top_canvas *canvas, unsigned end, unsigned y, unsigned width,
                    enum plim_top_style style, const char *text);

/** plim_top_cell() - one character; `plain` stands for it in an ASCII canvas. */
void plim_top_cell(struct plim_top_canvas *canvas, unsigned x, unsigned y,
                   enum plim_top_style style, uint32_t ch, char plain);

/** plim_top_style_row() - a whole row gets a style. */
void plim_top_style_row(struct plim_top_canvas *canvas, unsigned y, enum plim_top_style style);

/** plim_top_canvas_text() - as lines of UTF-8, without blanks at their ends and empty lines at the end. */
void plim_top_canvas_text(const struct plim_top_canvas *canvas, struct plim_buf *out);

#endif
