/* SPDX-License-Identifier: Apache-2.0 */
/* See html_parts.h. */

#include "report/html_parts.h"

#include "base/bytes.h"
#include "base/num.h"

/* The chart, in units of its drawing. */
#define CHART_LEFT   78.0
#define CHART_WIDTH  860.0
#define CHART_HEIGHT 150.0
#define CHART_TOP    8.0
#define CHART_BOTTOM 26.0
#define CHART_STEPS  3u

void plim_html_text(struct plim_buf *out, struct plim_str text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        switch (c) {
        case '<':
            plim_buf_text(out, "&lt;");
            break;
        case '>':
            plim_buf_text(out, "&gt;");
            break;
        case '&':
            plim_buf_text(out, "&amp;");
            break;
        case '"':
            plim_buf_text(out, "&quot;");
            break;
        case '\'':
            plim_buf_text(out, "&#39;");
            break;
        default:
            plim_buf_char(out, c < 0x20 || c == 0x7f ? ' ' : (char)c);
        }
    }
}

void plim_html_say(struct plim_buf *out, const char *text)
{
    plim_html_text(out, plim_str_from(text ? text : ""));
}

void plim_html_element(struct plim_buf *out, const char *name, const char *text)
{
    plim_buf_printf(out, "<%s>", name);
    plim_html_say(out, text);
    plim_buf_printf(out, "</%s>", name);
}

void plim_html_section_open(struct plim_buf *out, const char *id, const char *title)
{
    plim_buf_printf(out, "<section id=\"%s\" aria-labelledby=\"h-%s\"><h2 id=\"h-%s\">%s</h2>\n",
                    id, id, id, title);
}

void plim_html_section_close(struct plim_buf *out)
{
    plim_buf_text(out, "</section>\n");
}

void plim_html_note(struct plim_buf *out, const char *text)
{
    plim_buf_text(out, "<p class=\"note\">");
    plim_html_say(out, text);
    plim_buf_text(out, "</p>\n");
}

void plim_html_table_open(struct plim_buf *out, const char *label, const char *const *heads,
                          size_t n)
{
    plim_buf_printf(out,
                    "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"%s, table\">"
                    "<table class=\"sortable\"><thead><tr>",
                    label);
    for (size_t i = 0; i < n; i++) {
        plim_buf_printf(out, "<th scope=\"col\">%s</th>", heads[i]);
    }
    plim_buf_text(out, "</tr></thead><tbody>\n");
}

void plim_html_table_close(struct plim_buf *out)
{
    plim_buf_text(out, "</tbody></table></div>\n");
}

void plim_html_row_open(struct plim_buf *out, const char *kind)
{
    if (kind) {
        plim_buf_printf(out, "<tr class=\"%s\">", kind);
    } else {
        plim_buf_text(out, "<tr>");
    }
}

void plim_html_row_close(struct plim_buf *out)
{
    plim_buf_text(out, "</tr>\n");
}

void plim_html_cell_bytes(struct plim_buf *out, uint64_t bytes)
{
    char text[PLIM_BYTES_TEXT];
    plim_buf_printf(out, "<td class=\"n\" data-v=\"%llu\">%s</td>", (unsigned long long)bytes,
                    plim_bytes_format(text, bytes));
}

void plim_html_cell_change(struct plim_buf *out, uint64_t before, uint64_t after)
{
    char text[PLIM_BYTES_TEXT];
    const char *sign = after > before ? "+" : after < before ? "-" : "";
    uint64_t by = after > before ? after - before : before - after;
    plim_buf_printf(out, "<td class=\"n\" data-v=\"%s%llu\">%s%s</td>", after < before ? "-" : "",
                    (unsigned long long)by, sign, plim_bytes_format(text, by));
}

void plim_html_cell_count(struct plim_buf *out, uint64_t n)
{
    plim_buf_printf(out, "<td class=\"n\" data-v=\"%llu\">%llu</td>", (unsigned long long)n,
                    (unsigned long long)n);
}

void plim_html_cell_text(struct plim_buf *out, const char *text)
{
    plim_html_element(out, "td", text);
}

void plim_html_cell_none(struct plim_buf *out)
{
    plim_buf_text(out, "<td class=\"n\" data-v=\"\"></td>");
}

/* ---- the chart ---- */

struct scale {
    uint64_t x0;
    double per_x;
    double per_y;
};

static double y_at(const struct scale *s, uint64_t v)
{
    return CHART_TOP + CHART_HEIGHT - (double)v * s->per_y;
}

static void chart_line(struct plim_buf *out, const struct plim_html_line *line,
                       const struct scale *s)
{
    plim_buf_printf(out, "<polyline class=\"line %s\" points=\"", line->kind);
    for (size_t i = 0; i < line->n; i++) {
        plim_buf_printf(out, "%s%.1f,%.1f", i > 0 ? " " : "",
                        CHART_LEFT + (double)(line->x[i] - s->x0) * s->per_x, y_at(s, line->y[i]));
    }
    plim_buf_text(out, "\"/>");
}

static void chart_axes(struct plim_buf *out, const char *x_label, uint64_t first, uint64_t last,
                       uint64_t most, const struct scale *s)
{
    double bottom = CHART_TOP + CHART_HEIGHT;
    for (unsigned i = 0; i <= CHART_STEPS; i++) {
        char text[PLIM_BYTES_TEXT];
        uint64_t v = most / CHART_STEPS * i;
        plim_buf_printf(out,
                        "<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                        "<text class=\"label\" x=\"%.0f\" y=\"%.1f\">%s</text>",
                        CHART_LEFT, CHART_LEFT + CHART_WIDTH, y_at(s, v), y_at(s, v),
                        CHART_LEFT - 6, y_at(s, v) + 4, plim_bytes_format(text, v));
    }
    plim_buf_printf(out,
                    "<text class=\"value\" x=\"%.0f\" y=\"%.0f\">%s %llu</text>"
                    "<text class=\"value label\" x=\"%.0f\" y=\"%.0f\">%llu</text>",
                    CHART_LEFT, bottom + 18, x_label, (unsigned long long)first,
                    CHART_LEFT + CHART_WIDTH, bottom + 18, (unsigned long long)last);
}

void plim_html_chart(struct plim_buf *out, const char *label, const char *x_label,
                     const struct plim_html_line *lines, size_t n)
{
    uint64_t most = 0, first = UINT64_MAX, last = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < lines[i].n; k++) {
            most = plim_max_u64(most, lines[i].y[k]);
            first = plim_min_u64(first, lines[i].x[k]);
            last = plim_max_u64(last, lines[i].x[k]);
        }
    }
    if (most == 0 || last <= first) {
        return;
    }
    struct scale s = {first, CHART_WIDTH / (double)(last - first), CHART_HEIGHT / (double)most};
    plim_buf_printf(
        out, "<svg class=\"chart\" viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">",
        CHART_LEFT + CHART_WIDTH + 6, CHART_TOP + CHART_HEIGHT + CHART_BOTTOM, label);
    chart_axes(out, x_label, first, last, most, &s);
    for (size_t i = 0; i < n; i++) {
        chart_line(out, &lines[i], &s);
    }
    plim_buf_text(out, "</svg><ul class=\"legend\">");
    for (size_t i = 0; i < n; i++) {
        plim_buf_printf(out, "<li><i class=\"key %s\"></i>", lines[i].kind);
        plim_html_say(out, lines[i].label);
        plim_buf_text(out, "</li>");
    }
    plim_buf_text(out, "</ul>\n");
}
