/* SPDX-License-Identifier: Apache-2.0 */

/* What keys do. */

#include "top/layout.h"

#include "base/clock.h"
#include "base/num.h"

/* Steps of + and -. */
static const uint64_t intervals[] = {PLIM_SECOND_NS / 10, PLIM_SECOND_NS / 4, PLIM_SECOND_NS / 2,
                                     PLIM_SECOND_NS,      PLIM_SECOND_NS * 2, PLIM_SECOND_NS * 5,
                                     PLIM_SECOND_NS * 10, PLIM_SECOND_NS * 60};

static void select_row(const struct plim_top_model *m, struct plim_top_view *v,
                       struct plim_top_list *list, size_t row)
{
    if (list->rows.n == 0) {
        return;
    }
    list->selected = plim_min_u64(row, list->rows.n - 1);
    const struct plim_process_use *use = m->processes.items[list->rows.items[list->selected]].use;
    v->pid = use->pid;
    v->pid_device = use->device;
}

/* The first key down selects the first row; before it none is marked. */
static enum plim_top_action move(const struct plim_top_model *m, struct plim_top_view *v,
                                 struct plim_top_list *list, uint32_t key)
{
    size_t now = list->selected, page = plim_max_u64(list->visible, 1);
    bool none = v->pid == 0;
    switch (key) {
    case PLIM_TOP_KEY_UP:
    case 'k':
        now -= now > 0;
        break;
    case PLIM_TOP_KEY_DOWN:
    case 'j':
        now += !none;
        break;
    case PLIM_TOP_KEY_PAGE_UP:
        now = plim_sub_sat(now, page);
        break;
    case PLIM_TOP_KEY_PAGE_DOWN:
        now += page;
        break;
    case PLIM_TOP_KEY_HOME:
    case 'g':
        now = 0;
        break;
    case PLIM_TOP_KEY_END:
    case 'G':
        now = list->rows.n;
        break;
    default:
        return PLIM_TOP_NOTHING;
    }
    select_row(m, v, list, now);
    return PLIM_TOP_CHANGED;
}

static enum plim_top_action type(struct plim_top_view *v, uint32_t key)
{
    size_t n = strlen(v->filter);
    if (key == PLIM_TOP_KEY_ESCAPE || key == PLIM_TOP_KEY_ENTER || key == '\n' || key == '\r') {
        v->typing = false;
        n = key == PLIM_TOP_KEY_ESCAPE ? 0 : n;
    } else if (key == PLIM_TOP_KEY_BACKSPACE || key == 0x7f || key == '\b') {
        n -= n > 0;
    } else if (key >= ' ' && key < 0x7f && n + 1 < sizeof(v->filter)) {
        v->filter[n++] = (char)key;
    }
    v->filter[n] = '\0';
    return PLIM_TOP_CHANGED;
}

static void sort_by(struct plim_top_view *v, enum plim_top_column column)
{
    v->reverse = false;
    v->sort = column;
}

static enum plim_top_action sort_key(struct plim_top_view *v, uint32_t key)
{
    switch (key) {
    case '<':
        sort_by(v, (v->sort + PLIM_TOP_COLUMNS - 1) % PLIM_TOP_COLUMNS);
        break;
    case '>':
    case PLIM_TOP_KEY_F0 + 6:
        sort_by(v, (v->sort + 1) % PLIM_TOP_COLUMNS);
        break;
    case 'M':
        sort_by(v, PLIM_TOP_COLUMN_MEMORY);
        break;
    case 'P':
        sort_by(v, PLIM_TOP_COLUMN_PID);
        break;
    case 'N':
        sort_by(v, PLIM_TOP_COLUMN_NAME);
        break;
    case 'L':
        sort_by(v, PLIM_TOP_COLUMN_LIVE);
        break;
    case 'T':
        sort_by(v, PLIM_TOP_COLUMN_GROWTH);
        break;
    case 'r':
    case 'R':
        v->reverse = !v->reverse;
        break;
    default:
        return PLIM_TOP_NOTHING;
    }
    return PLIM_TOP_CHANGED;
}

static enum plim_top_action change_interval(struct plim_top_view *v, bool faster)
{
    size_t at = 0;
    while (at + 1 < PLIM_COUNT_OF(intervals) && intervals[at] < v->interval_ns) {
        at++;
    }
    if (faster && at > 0) {
        at--;
    } else if (!faster && at + 1 < PLIM_COUNT_OF(intervals)) {
        at += intervals[at] <= v->interval_ns;
    }
    v->interval_ns = intervals[at];
    return PLIM_TOP_RETIME;
}

/* What opens, closes, hides and narrows. */
static enum plim_top_action view_key(struct plim_top_view *v, uint32_t key)
{
    if (key >= '0' && key <= '9') {
        v->device = key - '0';
        return PLIM_TOP_CHANGED;
    }
    switch (key) {
    case 'h':
    case '?':
    case PLIM_TOP_KEY_F0 + 1:
        v->help = true;
        break;
    case 'i':
    case '\n':
    case '\r':
    case PLIM_TOP_KEY_ENTER:
        v->details = !v->details;
        break;
    case '/':
    case '\\':
    case PLIM_TOP_KEY_F0 + 3:
    case PLIM_TOP_KEY_F0 + 4:
        v->typing = true;
        break;
    case PLIM_TOP_KEY_ESCAPE:
        v->filter[v->details ? strlen(v->filter) : 0] =
            '\0'; /* first the details, then the filter */
        v->details = false;
        break;
    case 't':
    case 'V':
    case PLIM_TOP_KEY_F0 + 5:
        v->tree = !v->tree;
        break;
    case 'a':
        v->device = PLIM_TOP_ALL_DEVICES;
        break;
    case 'D':
        v->hide_devices = !v->hide_devices;
        break;
    case 'F':
        v->hide_findings = !v->hide_findings;
        break;
    case 'E':
        v->hide_engines = !v->hide_engines;
        break;
    case ' ':
    case 'p':
        v->paused = !v->paused;
        break;
    default:
        return PLIM_TOP_NOTHING;
    }
    return PLIM_TOP_CHANGED;
}

enum plim_top_action plim_top_key(const struct plim_top_model *m, struct plim_top_view *v,
                                  struct plim_top_list *list, uint32_t key)
{
    v->note = NULL;
    if (key == 3) { /* Ctrl-C, where the terminal does not make a signal of it */
        return PLIM_TOP_QUIT;
    }
    if (key == 12) { /* Ctrl-L */
        return PLIM_TOP_REDRAW;
    }
    if (v->typing) {
        return type(v, key);
    }
    if (v->help) {
        v->help = false;
        return PLIM_TOP_CHANGED;
    }
    if (key == 'q' || key == PLIM_TOP_KEY_F0 + 10) {
        return PLIM_TOP_QUIT;
    }
    if (key == '+' || key == '-') {
        return change_interval(v, key == '+');
    }
    if (key == 's') {
        return PLIM_TOP_SAMPLE;
    }
    enum plim_top_action done = move(m, v, list, key);
    done = done == PLIM_TOP_NOTHING ? sort_key(v, key) : done;
    return done == PLIM_TOP_NOTHING ? view_key(v, key) : done;
}
