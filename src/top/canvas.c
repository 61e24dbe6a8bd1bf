/* SPDX-License-Identifier: Apache-2.0 */

/* Cells, and text that becomes cells. */

#include "top/canvas.h"

#include "base/num.h"
#include "format/utf8.h"

#include <stdarg.h>
#include <stdio.h>

enum plim_status plim_top_canvas_size(struct plim_top_canvas *c, unsigned width, unsigned height,
                                      struct plim_err *err)
{
    size_t n = (size_t)width * height;
    c->cells.n = 0;
    PLIM_TRY(plim_vec_reserve(&c->cells, n, err));
    for (size_t i = 0; i < n; i++) {
        c->cells.items[i] = (struct plim_top_cell){' ', PLIM_TOP_PLAIN};
    }
    c->cells.n = n;
    c->width = width;
    c->height = height;
    return PLIM_OK;
}

void plim_top_canvas_fini(struct plim_top_canvas *c)
{
    plim_vec_fini(&c->cells);
}

static struct plim_top_cell *at(struct plim_top_canvas *c, unsigned x, unsigned y)
{
    return x < c->width && y < c->height ? &c->cells.items[(size_t)y * c->width + x] : NULL;
}

/* Columns that a character takes: East Asian wide and emoji 2 (Unicode 15, EastAsianWidth W and F, in whole
 * blocks), marks that combine and what is not shown 0. */
static unsigned columns(uint32_t c)
{
    static const struct {
        uint32_t from, to;
        unsigned columns;
    } blocks[] = {
        {0x0300, 0x036f, 0}, {0x1100, 0x115f, 2},   {0x200b, 0x200f, 0},   {0x2028, 0x202e, 0},
        {0x2060, 0x206f, 0}, {0x2e80, 0xa4cf, 2},   {0xac00, 0xd7a3, 2},   {0xf900, 0xfaff, 2},
        {0xfe00, 0xfe0f, 0}, {0xfe30, 0xfe6f, 2},   {0xfeff, 0xfeff, 0},   {0xff00, 0xff60, 2},
        {0xffe0, 0xffe6, 2}, {0x1f300, 0x1faff, 2}, {0x20000, 0x3fffd, 2},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(blocks); i++) {
        if (c >= blocks[i].from && c <= blocks[i].to) {
            return blocks[i].columns;
        }
    }
    return 1;
}

/* The first character of a text: its code point, its bytes in *n. What is no text is '?'. */
static uint32_t first_character(struct plim_str s, size_t *n)
{
    static const unsigned char lead[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    *n = plim_str_utf8(s);
    if (*n == 0) {
        *n = 1;
        return '?';
    }
    uint32_t c = (unsigned char)s.p[0] & lead[*n];
    for (size_t i = 1; i < *n; i++) {
        c = c << 6 | ((unsigned char)s.p[i] & 0x3f);
    }
    return c < 0x20 || (c >= 0x7f && c < 0xa0) ? ' ' : c;
}

unsigned plim_top_put(struct plim_top_canvas *c, unsigned x, unsigned y, unsigned limit,
                      enum plim_top_style style, const char *text)
{
    unsigned end = limit < c->width - plim_min_u64(x, c->width) ? x + limit : c->width;
    struct plim_str rest = plim_str_from(text);
    while (rest.n > 0 && x < end) {
        size_t n;
        uint32_t ch = first_character(rest, &n);
        ch = c->ascii && ch > 0x7e ? '?' : ch;
        unsigned wide = columns(ch);
        rest = plim_str_skip(rest, n);
        struct plim_top_cell *cell = at(c, x, y);
        if (wide == 0 || cell == NULL) {
            continue;
        }
        if (x + wide > end) {
            break;
        }
        *cell = (struct plim_top_cell){ch, (uint8_t)style};
        if (wide == 2) {
            cell[1] = (struct plim_top_cell){0, (uint8_t)style};
        }
        x += wide;
    }
    return x;
}

unsigned plim_top_putf(struct plim_top_canvas *c, unsigned x, unsigned y, enum plim_top_style style,
                       const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return plim_top_put(c, x, y, c->width, style, text);
}

void plim_top_right(struct plim_top_canvas *c, unsigned end, unsigned y, unsigned width,
                    enum plim_top_style style, const char *text)
{
    unsigned n = (unsigned)strlen(text); /* of figures: ASCII */
    n = n > width ? width : n;
    plim_top_put(c, end > n ? end - n : 0, y, n, style, text);
}

void plim_top_cell(struct plim_top_canvas *c, unsigned x, unsigned y, enum plim_top_style style,
                   uint32_t ch, char plain)
{
    struct plim_top_cell *cell = at(c, x, y);
    if (cell != NULL) {
        *cell =
            (struct plim_top_cell){c->ascii ? (uint32_t)(unsigned char)plain : ch, (uint8_t)style};
    }
}

void plim_top_style_row(struct plim_top_canvas *c, unsigned y, enum plim_top_style style)
{
    for (unsigned x = 0; y < c->height && x < c->width; x++) {
        at(c, x, y)->style = (uint8_t)style;
    }
}

void plim_top_canvas_text(const struct plim_top_canvas *c, struct plim_buf *out)
{
    unsigned blank_lines = 0;
    for (unsigned y = 0; y < c->height; y++) {
        const struct plim_top_cell *row = &c->cells.items[(size_t)y * c->width];
        unsigned n = c->width;
        while (n > 0 && row[n - 1].ch == ' ') {
            n--;
        }
        if (n == 0) {
            blank_lines++;
            continue;
        }
        plim_buf_repeat(out, "\n", blank_lines);
        blank_lines = 0;
        for (unsigned x = 0; x < n; x++) {
            if (row[x].ch != 0) {
                plim__utf8(out, row[x].ch);
            }
        }
        plim_buf_char(out, '\n');
    }
}
