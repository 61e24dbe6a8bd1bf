/* SPDX-License-Identifier: Apache-2.0 */

/* The list of processes: which ones, in which order, in which columns. */

#include "top/layout.h"

#include "base/bytes.h"
#include "base/num.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>

static const struct {
    const char *title;
    unsigned width, rank;
} columns[] = {
#define PLIM__X(name, title, width, rank, help) {title, width, rank},
    PLIM_TOP_COLUMN_MAP(PLIM__X)
#undef PLIM__X
};

void plim_top_list_fini(struct plim_top_list *list)
{
    plim_vec_fini(&list->rows);
}

/* ---- which ---- */

static bool has_text(const char *where, const char *what)
{
    size_t n = strlen(what);
    for (; *where != '\0'; where++) {
        size_t i = 0;
        while (i < n && tolower((unsigned char)where[i]) == tolower((unsigned char)what[i])) {
            i++;
        }
        if (i == n) {
            return true;
        }
    }
    return n == 0;
}

static bool is_wanted(const struct plim_top_process *p, const struct plim_top_view *v)
{
    char pid[16];
    (void)snprintf(pid, sizeof(pid), "%u", p->use->pid);
    if (v->device != PLIM_TOP_ALL_DEVICES && p->use->device != v->device) {
        return false;
    }
    return has_text(pid, v->filter) ||
           (p->facts != NULL &&
            (has_text(p->facts->name, v->filter) || has_text(p->facts->unit, v->filter) ||
             has_text(p->facts->container, v->filter)));
}

/* ---- in which order ---- */

static const char *name_of(const struct plim_top_process *p)
{
    return p->facts != NULL && p->facts->name[0] != '\0' ? p->facts->name : "(unknown)";
}

/* What a column sorts by; names are compared as texts. */
static double value_of(const struct plim_top_process *p, enum plim_top_column column)
{
    switch (column) {
    case PLIM_TOP_COLUMN_PID:
        return -(double)p->use->pid; /* the least first */
    case PLIM_TOP_COLUMN_DEVICE:
        return -(double)p->use->device;
    case PLIM_TOP_COLUMN_KIND:
        return p->use->kinds;
    case PLIM_TOP_COLUMN_LIVE:
        return (double)p->books.allocated;
    case PLIM_TOP_COLUMN_SLACK:
        return (double)p->books.slack;
    case PLIM_TOP_COLUMN_STRANDED:
        return (double)p->stranded;
    case PLIM_TOP_COLUMN_OUTSIDE:
        return p->books.told ? (double)(p->books.outside + p->books.unknown) : -1;
    case PLIM_TOP_COLUMN_GROWTH:
    case PLIM_TOP_COLUMN_TREND:
        return p->growth_valid ? p->growth : -HUGE_VAL;
    case PLIM_TOP_COLUMN_HOST:
        return p->facts != NULL ? (double)p->facts->rss : -1;
    case PLIM_TOP_COLUMN_NAME:
    case PLIM_TOP_COLUMN_MEMORY:
    case PLIM_TOP_COLUMN_SHARE:
    case PLIM_TOP_COLUMNS:
        break;
    }
    return p->use->bytes_valid ? (double)p->use->counted : -1;
}

/* Whether a stands before b. What is equal stays in the order of pid and device, so that rows do not jump. */
static bool before(const struct plim_top_process *a, const struct plim_top_process *b,
                   const struct plim_top_view *v)
{
    double order = value_of(b, v->sort) - value_of(a, v->sort);
    if (v->sort == PLIM_TOP_COLUMN_NAME) {
        order = (double)strcmp(name_of(a), name_of(b));
    }
    if (order != 0 && !isnan(order)) {
        return v->reverse ? order > 0 : order < 0;
    }
    return a->use->pid != b->use->pid ? a->use->pid < b->use->pid : a->use->device < b->use->device;
}

static void sort_rows(const struct plim_top_model *m, const struct plim_top_view *v,
                      struct plim_top_list *list)
{
    size_t *rows = list->rows.items;
    for (size_t i = 1; i < list->rows.n; i++) {
        size_t row = rows[i], at = i;
        for (; at > 0 && before(&m->processes.items[row], &m->processes.items[rows[at - 1]], v);
             at--) {
            rows[at] = rows[at - 1];
        }
        rows[at] = row;
    }
}

/* ---- as a tree ---- */

/* The row whose process is this one's parent, on the same device; SIZE_MAX: none in the list. */
static size_t parent_of(const struct plim_top_model *m, const struct plim_top_list *list,
                        size_t row)
{
    const struct plim_top_process *p = &m->processes.items[list->rows.items[row]];
    for (size_t i = 0; p->facts != NULL && i < list->rows.n; i++) {
        const struct plim_top_process *other = &m->processes.items[list->rows.items[i]];
        if (i != row && other->use->pid == p->facts->ppid && other->use->device == p->use->device) {
            return i;
        }
    }
    return SIZE_MAX;
}

/* Children behind their parents, each among its brothers in the list's order. Two that call each other parent, which
 * no process does and a made-up file may, are both roots. */
static enum plim_status hang(struct plim_top_model *m, struct plim_top_list *list,
                             struct plim_err *err)
{
    size_t n = list->rows.n;
    size_t *old = list->rows.items, *parent = malloc((n + 1) * sizeof(*parent));
    size_t *order = malloc((n + 1) * sizeof(*order)), done = 0;
    if (parent == NULL || order == NULL) {
        free(parent);
        free(order);
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a tree of processes");
    }
    for (size_t i = 0; i < n; i++) {
        parent[i] = parent_of(m, list, i);
    }
    /* Depth first, with the rows themselves as the stack: the next one is the first child not yet placed of the
     * nearest ancestor that has one. */
    bool *placed = calloc(n + 1, sizeof(*placed));
    for (size_t at = SIZE_MAX; placed != NULL && done < n;) {
        size_t next = SIZE_MAX;
        for (size_t i = 0; i < n && next == SIZE_MAX; i++) {
            next = !placed[i] && parent[i] == at ? i : SIZE_MAX;
        }
        if (next == SIZE_MAX && at == SIZE_MAX) {
            for (size_t i = 0; i < n; i++) { /* only circles are left */
                parent[i] = placed[i] ? parent[i] : SIZE_MAX;
            }
            continue;
        }
        if (next == SIZE_MAX) {
            at = parent[at];
            continue;
        }
        placed[next] = true;
        m->processes.items[old[next]].depth =
            at == SIZE_MAX ? 0 : m->processes.items[old[at]].depth + 1;
        order[done++] = old[next];
        at = next;
    }
    if (placed != NULL && n > 0) {
        memcpy(old, order, n * sizeof(*old));
    }
    free(placed);
    free(parent);
    free(order);
    return placed != NULL ? PLIM_OK : plim__fail(err, PLIM_E_NOMEM, "no memory for a tree");
}

/* ---- the selected one ---- */

static void find_selected(const struct plim_top_model *m, struct plim_top_view *v,
                          struct plim_top_list *list)
{
    size_t found = SIZE_MAX;
    for (size_t i = 0; i < list->rows.n; i++) {
        const struct plim_process_use *use = m->processes.items[list->rows.items[i]].use;
        if (use->pid == v->pid && use->device == v->pid_device) {
            found = i;
        }
    }
    if (found == SIZE_MAX) {
        size_t last = list->rows.n > 0 ? list->rows.n - 1 : 0;
        found = v->pid == 0 ? 0 : plim_min_u64(list->selected, last);
    }
    list->selected = found;
    if (v->pid != 0 && found < list->rows.n) {
        v->pid = m->processes.items[list->rows.items[found]].use->pid;
        v->pid_device = m->processes.items[list->rows.items[found]].use->device;
    }
}

enum plim_status plim_top_list_make(struct plim_top_model *m, struct plim_top_view *v,
                                    struct plim_top_list *list, struct plim_err *err)
{
    list->rows.n = 0;
    for (size_t i = 0; i < m->processes.n; i++) {
        m->processes.items[i].depth = 0;
        if (is_wanted(&m->processes.items[i], v)) {
            PLIM_TRY(plim_vec_push(&list->rows, err, i));
        }
    }
    sort_rows(m, v, list);
    if (v->tree) {
        PLIM_TRY(hang(m, list, err));
    }
    find_selected(m, v, list);
    return PLIM_OK;
}

/* ---- columns ---- */

/* Which columns fit into the width; bit for each. */
static unsigned fitting(unsigned width)
{
    unsigned shown = (1u << PLIM_TOP_COLUMNS) - 1;
    for (unsigned rank = 10; rank > 0; rank--) {
        unsigned sum = 0;
        for (unsigned i = 0; i < PLIM_TOP_COLUMNS; i++) {
            sum += (shown >> i & 1) != 0 ? columns[i].width : 0;
        }
        for (unsigned i = 0; sum > width && i < PLIM_TOP_COLUMNS; i++) {
            shown &= columns[i].rank == rank ? ~(1u << i) : ~0u;
        }
    }
    return shown;
}

static void draw_head(const struct plim_top_view *v, struct plim_top_canvas *c, unsigned y,
                      unsigned shown)
{
    unsigned x = 0;
    for (unsigned i = 0; i < PLIM_TOP_COLUMNS; i++) {
        char title[20];
        bool sorted = v->sort == i;
        bool left = i == PLIM_TOP_COLUMN_NAME || i == PLIM_TOP_COLUMN_TREND;
        if ((shown >> i & 1) == 0) {
            continue;
        }
        (void)snprintf(title, sizeof(title), "%s%s", columns[i].title,
                       sorted ? (v->reverse ? "^" : "v") : "");
        if (left) {
            plim_top_put(c, x + 1, y, columns[i].width, PLIM_TOP_TITLE, title);
        } else {
            plim_top_right(c, x + columns[i].width, y, columns[i].width, PLIM_TOP_TITLE, title);
        }
        x += columns[i].width;
    }
    plim_top_style_row(c, y, PLIM_TOP_TITLE);
}

/* The figure of a column as text; "" when it is not known. */
static void figure_text(const struct plim_top_model *m, const struct plim_top_process *p,
                        enum plim_top_column column, char out[40])
{
    char size[PLIM_BYTES_TEXT];
    const struct plim_top_device *d = &m->devices.items[p->use->device];
    uint64_t bytes = UINT64_MAX;
    out[0] = '\0';
    if (column == PLIM_TOP_COLUMN_PID) {
        (void)snprintf(out, 40, "%u", p->use->pid);
    } else if (column == PLIM_TOP_COLUMN_DEVICE) {
        (void)snprintf(out, 40, "%u", p->use->device);
    } else if (column == PLIM_TOP_COLUMN_KIND) {
        (void)snprintf(out, 40, "%s%s%s", p->use->kinds & PLIM_USE_COMPUTE ? "C" : "",
                       p->use->kinds & PLIM_USE_GRAPHICS ? "G" : "",
                       p->use->kinds & PLIM_USE_MPS ? "M" : "");
    } else if (column == PLIM_TOP_COLUMN_SHARE && p->use->bytes_valid && d->known && d->total > 0) {
        (void)snprintf(out, 40, "%.1f", 100.0 * (double)p->use->counted / (double)d->total);
    } else if (column == PLIM_TOP_COLUMN_GROWTH && p->growth_valid) {
        double minute = p->growth * 60;
        (void)snprintf(out, 40, "%s%s",
                       minute > 0   ? "+"
                       : minute < 0 ? "-"
                                    : "",
                       plim_bytes_format(size, (uint64_t)fmin(fabs(minute), 1e18)));
    } else if (column == PLIM_TOP_COLUMN_MEMORY) {
        bytes = p->use->bytes_valid ? p->use->counted : UINT64_MAX;
    } else if (column == PLIM_TOP_COLUMN_LIVE) {
        bytes = p->books.told ? p->books.allocated : UINT64_MAX;
    } else if (column == PLIM_TOP_COLUMN_SLACK) {
        bytes = p->books.told ? p->books.slack : UINT64_MAX;
    } else if (column == PLIM_TOP_COLUMN_STRANDED) {
        bytes = p->books.told ? p->stranded : UINT64_MAX;
    } else if (column == PLIM_TOP_COLUMN_OUTSIDE) {
        bytes = p->books.told ? p->books.outside + p->books.unknown : UINT64_MAX;
    } else if (column == PLIM_TOP_COLUMN_HOST) {
        bytes = p->facts != NULL && p->facts->rss > 0 ? p->facts->rss : UINT64_MAX;
    }
    if (bytes != UINT64_MAX) {
        (void)snprintf(out, 40, "%s", plim_bytes_format(size, bytes));
    }
}

/* Name, and where it belongs to: its unit, or the beginning of its container's id. */
static void draw_name(const struct plim_top_process *p, struct plim_top_canvas *c, unsigned x,
                      unsigned y)
{
    for (unsigned i = 0; i < p->depth && i < 8; i++) {
        x = plim_top_put(c, x, y, 2, PLIM_TOP_DIM,
                         i + 1 == p->depth ? (c->ascii ? "`-" : "└─") : "  ");
    }
    x = plim_top_put(c, x, y, c->width, PLIM_TOP_PLAIN, name_of(p));
    if (p->facts != NULL && p->facts->unit[0] != '\0') {
        plim_top_putf(c, x + 1, y, PLIM_TOP_DIM, "%s", p->facts->unit);
    } else if (p->facts != NULL && p->facts->container[0] != '\0') {
        plim_top_putf(c, x + 1, y, PLIM_TOP_DIM, "container %.12s", p->facts->container);
    }
}

static void draw_row(const struct plim_top_model *m, const struct plim_top_process *p,
                     struct plim_top_canvas *c, unsigned y, unsigned shown)
{
    unsigned x = 0;
    for (unsigned i = 0; i < PLIM_TOP_COLUMNS; i++) {
        char text[40];
        if ((shown >> i & 1) == 0) {
            continue;
        }
        if (i == PLIM_TOP_COLUMN_NAME) {
            draw_name(p, c, x + 1, y);
        } else if (i == PLIM_TOP_COLUMN_TREND) {
            plim__top_trend(c, x + 1, y, columns[i].width - 1, m, p->trend, 0);
        } else {
            bool grows = i == PLIM_TOP_COLUMN_GROWTH && p->growth_valid && p->growth > 0;
            figure_text(m, p, (enum plim_top_column)i, text);
            plim_top_right(c, x + columns[i].width, y, columns[i].width - 1,
                           grows ? PLIM_TOP_WARN : PLIM_TOP_PLAIN, text);
        }
        x += columns[i].width;
    }
}

void plim__top_list(const struct plim_top_model *m, struct plim_top_view *v,
                    struct plim_top_list *list, struct plim_top_canvas *c, unsigned y,
                    unsigned height)
{
    unsigned shown = fitting(c->width);
    list->visible = height > 1 ? height - 1 : 0;
    if (height == 0) {
        return;
    }
    draw_head(v, c, y, shown);
    size_t most = list->rows.n > list->visible ? list->rows.n - list->visible : 0;
    v->first = plim_min_u64(v->first, most);
    v->first = plim_min_u64(v->first, list->selected);
    if (list->visible > 0 && list->selected >= v->first + list->visible) {
        v->first = list->selected + 1 - list->visible;
    }
    for (size_t i = 0; i < list->visible && v->first + i < list->rows.n; i++) {
        unsigned line = y + 1 + (unsigned)i;
        draw_row(m, &m->processes.items[list->rows.items[v->first + i]], c, line, shown);
        if (v->pid != 0 && v->first + i == list->selected) {
            plim_top_style_row(c, line, PLIM_TOP_SELECTED);
        }
    }
    if (list->rows.n == 0 && list->visible > 0) {
        plim_top_put(c, 1, y + 1, c->width, PLIM_TOP_DIM,
                     m->processes.n > 0 ? "no process has this text (Esc shows all)"
                                        : "no process that uses a device can be seen");
    }
}
