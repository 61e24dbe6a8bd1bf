/* SPDX-License-Identifier: Apache-2.0 */

/* What opens over the screen: the keys, and all that is known of one process. */

#include "top/layout.h"

#include "base/bytes.h"
#include "base/num.h"

#include <stdio.h>

struct box {
    struct plim_top_canvas *canvas;
    unsigned x, y, width, height, line;
};

/* A cleared box in the middle of the canvas, as large as is wanted and possible. */
static struct box open_box(struct plim_top_canvas *c, unsigned width, unsigned height,
                           const char *title)
{
    struct box b = {.canvas = c};
    b.width = (unsigned)plim_min_u64(width, c->width);
    b.height = (unsigned)plim_min_u64(height, c->height);
    b.x = (c->width - b.width) / 2;
    b.y = (c->height - b.height) / 2;
    for (unsigned y = 0; y < b.height; y++) {
        for (unsigned x = 0; x < b.width; x++) {
            bool edge = x == 0 || x + 1 == b.width;
            bool rim = y == 0 || y + 1 == b.height;
            uint32_t ch = rim && edge ? (y == 0   ? (x == 0 ? 0x250c : 0x2510)
                                         : x == 0 ? 0x2514
                                                  : 0x2518)
                          : rim       ? 0x2500
                          : edge      ? 0x2502
                                      : ' ';
            plim_top_cell(c, b.x + x, b.y + y, PLIM_TOP_PLAIN, ch,
                          rim && edge ? '+'
                          : rim       ? '-'
                          : edge      ? '|'
                                      : ' ');
        }
    }
    if (b.width > 4) {
        plim_top_put(c, b.x + 2, b.y, b.width - 4, PLIM_TOP_BOLD, title);
    }
    return b;
}

/* One line of the box; false: it is full. */
static bool put_line(struct box *b, enum plim_top_style style, unsigned indent, const char *text)
{
    if (b->line + 2 >= b->height || b->width <= indent + 4) {
        return false;
    }
    b->line++;
    plim_top_put(b->canvas, b->x + 2 + indent, b->y + b->line, b->width - 4 - indent, style, text);
    return true;
}

/* Text of any length in lines, broken between words. */
static void put_text(struct box *b, enum plim_top_style style, const char *text)
{
    size_t room = b->width > 6 ? b->width - 6 : 0;
    while (*text != '\0' && room > 0) {
        char line[400];
        size_t n = strcspn(text, "\n");
        size_t take = plim_min_u64(plim_min_u64(n, room), sizeof(line) - 1);
        if (take < n) {
            size_t space = take;
            while (space > 0 && text[space] != ' ') {
                space--;
            }
            take = space > 0 ? space : take;
        }
        (void)snprintf(line, sizeof(line), "%.*s", (int)take, text);
        if (!put_line(b, style, 2, line)) {
            return;
        }
        text += take;
        text += *text == ' ' || *text == '\n';
    }
}

void plim__top_help(struct plim_top_canvas *c)
{
    static const struct {
        const char *keys, *text;
    } rows[] = {
#define PLIM__X(keys, text) {keys, text},
        PLIM_TOP_KEY_MAP(PLIM__X)
#undef PLIM__X
    };
    static const struct {
        const char *title, *help;
    } columns[] = {
#define PLIM__X(name, title, width, rank, help) {title, help},
        PLIM_TOP_COLUMN_MAP(PLIM__X)
#undef PLIM__X
    };
    char text[160];
    unsigned lines = PLIM_COUNT_OF(rows) + PLIM_COUNT_OF(columns) + 3;
    struct box b = open_box(c, 92, lines + 1, " Keys and columns ");
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        (void)snprintf(text, sizeof(text), "%-14s %s", rows[i].keys, rows[i].text);
        (void)put_line(&b, PLIM_TOP_PLAIN, 0, text);
    }
    (void)put_line(&b, PLIM_TOP_PLAIN, 0, "");
    for (size_t i = 0; i < PLIM_COUNT_OF(columns); i++) {
        (void)snprintf(text, sizeof(text), "%-14s %s", columns[i].title, columns[i].help);
        (void)put_line(&b, PLIM_TOP_DIM, 0, text);
    }
}

static void put_size(struct box *b, const char *what, uint64_t bytes)
{
    char text[120], size[PLIM_BYTES_TEXT];
    (void)snprintf(text, sizeof(text), "%-26s %12s", what, plim_bytes_format(size, bytes));
    (void)put_line(b, PLIM_TOP_PLAIN, 0, text);
}

static void put_books(struct box *b, const struct plim_top_process *p)
{
    if (p->use->bytes_valid) {
        put_size(b, "device memory", p->use->counted);
    }
    if (p->books.told) {
        put_size(b, "  live", p->books.allocated);
        put_size(b, "  slack, stranded", p->stranded);
        put_size(b, "  slack, releasable", p->books.slack - p->stranded);
        put_size(b, "  outside, by owner", p->books.outside);
        put_size(b, "  outside, owner unknown", p->books.unknown);
    } else {
        (void)put_line(b, PLIM_TOP_DIM, 2,
                       "it tells nothing of itself: start it under plimsoll record, or");
        (void)put_line(b, PLIM_TOP_DIM, 2, "with PLIMSOLL_ATTACH=1, to see live memory and slack");
    }
}

static void put_facts(struct box *b, const struct plim_process_facts *f)
{
    char text[220];
    put_size(b, "host memory", f->rss);
    (void)snprintf(text, sizeof(text), "parent %u", f->ppid);
    (void)put_line(b, PLIM_TOP_DIM, 0, text);
    if (f->unit[0] != '\0') {
        (void)snprintf(text, sizeof(text), "unit %s", f->unit);
        (void)put_line(b, PLIM_TOP_DIM, 0, text);
    }
    if (f->container[0] != '\0') {
        (void)snprintf(text, sizeof(text), "container %s", f->container);
        (void)put_line(b, PLIM_TOP_DIM, 0, text);
    }
    if (f->pod[0] != '\0') {
        (void)snprintf(text, sizeof(text), "pod %s", f->pod);
        (void)put_line(b, PLIM_TOP_DIM, 0, text);
    }
}

static void put_findings(struct box *b, const struct plim_state *s,
                         const struct plim_process_use *use)
{
    for (size_t i = 0; i < s->n_findings; i++) {
        const struct plim_finding *f = &s->findings[i];
        bool of_device = f->subject.pid == 0 && f->subject.device == use->device;
        if (!f->active || (f->subject.pid != use->pid && !of_device)) {
            continue;
        }
        (void)put_line(b, PLIM_TOP_PLAIN, 0, "");
        (void)put_line(b, PLIM_TOP_WARN, 0, plim_finding_class_text(f->class));
        put_text(b, PLIM_TOP_PLAIN, f->summary);
        put_text(b, PLIM_TOP_DIM, f->evidence);
        put_text(b, PLIM_TOP_KEY, f->next_step);
    }
}

void plim__top_details(const struct plim_top_model *m, const struct plim_top_list *list,
                       struct plim_top_canvas *c)
{
    char title[80];
    if (list->selected >= list->rows.n) {
        return;
    }
    const struct plim_top_process *p = &m->processes.items[list->rows.items[list->selected]];
    (void)snprintf(title, sizeof(title), " %s, process %u on device %u ",
                   p->facts != NULL ? p->facts->name : "(unknown)", p->use->pid, p->use->device);
    struct box b = open_box(c, 92, c->height > 6 ? c->height - 4 : c->height, title);
    put_books(&b, p);
    if (p->facts != NULL) {
        put_facts(&b, p->facts);
    }
    put_findings(&b, m->state, p->use);
}
