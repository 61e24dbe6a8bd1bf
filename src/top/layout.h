/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TOP_LAYOUT_H
#define PLIM_TOP_LAYOUT_H

/*
 * What stands where: from a model, a view and a size to a canvas. Pure: the same input gives the same screen.
 *
 *   view     what the user has chosen: sorting, filter, tree, what is selected, which panels are open
 *   column   of the list of processes; as many as the width allows, the most telling first
 *
 * From top to bottom: a title; two lines for each device, the second a bar of its parts; findings; engines; the list
 * of processes, which takes what is left and scrolls; a line of keys, or of what is being typed. On a small screen
 * panels get shorter, then go; the list keeps two lines at least.
 * Threads: plain data.
 */

#include "top/canvas.h"
#include "top/model.h"

/* X(NAME, title, width, rank, what it shows): columns from left to right. When the width does not do, those with the
 * greatest rank go first; the name takes what is left. */
#define PLIM_TOP_COLUMN_MAP(X)                                                                     \
    X(PID, "PID", 8, 0, "process id")                                                              \
    X(DEVICE, "DEV", 4, 1, "device")                                                               \
    X(KIND, "TYPE", 5, 7, "C computes, G draws, M is a client of MPS")                             \
    X(MEMORY, "MEMORY", 11, 0, "device memory, as the driver counts it")                           \
    X(SHARE, "%", 6, 2, "of the device's memory")                                                  \
    X(LIVE, "LIVE", 11, 4, "handed out by the process's allocators")                               \
    X(SLACK, "SLACK", 11, 5, "held by its allocators and not handed out")                          \
    X(STRANDED, "STRANDED", 11, 6, "of the slack, what cannot go back to the driver")              \
    X(OUTSIDE, "OUTSIDE", 11, 8, "not of its allocators: context, NCCL, graphs ...")               \
    X(GROWTH, "PER MIN", 12, 3, "how much it grew in the last minute")                             \
    X(TREND, "TREND", 14, 9, "its memory in the last minutes")                                     \
    X(HOST, "HOST", 11, 10, "resident host memory")                                                \
    X(NAME, "NAME", 16, 0, "name, and its unit or container")

enum plim_top_column {
#define PLIM__X(name, title, width, rank, help) PLIM_TOP_COLUMN_##name,
    PLIM_TOP_COLUMN_MAP(PLIM__X)
#undef PLIM__X
    PLIM_TOP_COLUMNS
};

#define PLIM_TOP_ALL_DEVICES UINT32_MAX

struct plim_top_view {
    enum plim_top_column sort;
    bool reverse; /* against the column's own order: text from A on, sizes from the greatest on */
    bool tree;
    char filter[64]; /* part of a name, unit, container or pid; "" everything */
    bool typing;     /* the filter is being typed */
    uint32_t device; /* only its processes, or ALL_DEVICES */
    bool hide_devices, hide_findings, hide_engines;
    bool paused, help, details;
    bool batch; /* for no terminal: without the line of keys */
    uint64_t interval_ns;
    uint32_t pid, pid_device; /* the selected process; pid 0: the first */
    size_t first;             /* row at the top of the list */
    const char *note;         /* said in the last line instead of the keys, or NULL */
};

/* The list as it is shown: indexes of the model's processes. */
struct plim_top_list {
    PLIM_VEC(size_t) rows;
    size_t selected; /* index in rows */
    size_t visible;  /* rows that the screen has room for, after the last layout */
};

void plim_top_list_fini(struct plim_top_list *list);

/** plim_top_list_make() - filter, sort or hang into a tree; find the selected one again, or what stands where it
 * stood. Sets the depth of the model's processes. Errors: PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim_top_list_make(struct plim_top_model *model,
                                                  struct plim_top_view *view,
                                                  struct plim_top_list *list, struct plim_err *err);

/** plim_top_layout() - draw. @canvas: sized and blank. @view: its `first` follows the selected row. */
void plim_top_layout(const struct plim_top_model *model, struct plim_top_view *view,
                     struct plim_top_list *list, struct plim_top_canvas *canvas);

/* ---- keys (keys.c) ---- */

/* Keys that are no characters. */
enum plim_top_special {
    PLIM_TOP_KEY_UP = 0x110000, /* behind Unicode */
    PLIM_TOP_KEY_DOWN,
    PLIM_TOP_KEY_PAGE_UP,
    PLIM_TOP_KEY_PAGE_DOWN,
    PLIM_TOP_KEY_HOME,
    PLIM_TOP_KEY_END,
    PLIM_TOP_KEY_ENTER,
    PLIM_TOP_KEY_BACKSPACE,
    PLIM_TOP_KEY_ESCAPE,
    PLIM_TOP_KEY_F0, /* and F1 to F12 behind it */
    PLIM_TOP_KEY_LAST = PLIM_TOP_KEY_F0 + 12,
};

enum plim_top_action {
    PLIM_TOP_NOTHING,
    PLIM_TOP_CHANGED, /* draw again */
    PLIM_TOP_REDRAW,  /* the whole screen, from scratch */
    PLIM_TOP_RETIME,  /* the interval was changed */
    PLIM_TOP_SAMPLE,  /* look now */
    PLIM_TOP_QUIT,
};

/* X(keys as people write them, what they do): the help overlay and the man page say this. */
#define PLIM_TOP_KEY_MAP(X)                                                                        \
    X("q F10 Ctrl-C", "end")                                                                       \
    X("h ? F1", "this help; any key ends it")                                                      \
    X("up down j k", "select a process; also PgUp, PgDn, Home, End, g, G")                         \
    X("Enter i", "details of the selected process, with what is found wrong of it")                \
    X("< > F6", "sort by the column to the left, to the right")                                    \
    X("M P N L T", "sort by memory, pid, name, live memory, growth (trend)")                       \
    X("r R", "reverse the order")                                                                  \
    X("/ \\ F3 F4", "show only what has a text in name, unit, container or pid; Esc ends it")      \
    X("t V F5", "tree: processes under their parents")                                             \
    X("0 ... 9", "only the processes of that device; a: of all")                                   \
    X("D F E", "devices, findings, engines: show or hide")                                         \
    X("+ -", "look more often, less often")                                                        \
    X("space p", "stand still; look once more with s")                                             \
    X("Ctrl-L", "draw the screen anew")

/** plim_top_key() - what a key does to the view. @key: a code point or a special key. */
enum plim_top_action plim_top_key(const struct plim_top_model *model, struct plim_top_view *view,
                                  struct plim_top_list *list, uint32_t key);

/* ---- shared by the layout's files ---- */

/** plim__top_trend() - the last `width` values as a line of small bars, on the scale of `most` (0: the trend's own
 * greatest). */
void plim__top_trend(struct plim_top_canvas *canvas, unsigned x, unsigned y, unsigned width,
                     const struct plim_top_model *model, size_t trend, uint64_t most);

/** plim__top_list() - the list of processes, with its head, from row `y` on. */
void plim__top_list(const struct plim_top_model *model, struct plim_top_view *view,
                    struct plim_top_list *list, struct plim_top_canvas *canvas, unsigned y,
                    unsigned height);

/** plim__top_overlay() - help, or details of the selected process, over what is there. */
void plim__top_help(struct plim_top_canvas *canvas);
void plim__top_details(const struct plim_top_model *model, const struct plim_top_list *list,
                       struct plim_top_canvas *canvas);

/** plim__top_time() - "45 s", "3 h 20 min", "2 days" into text[32]; returned. */
char *plim__top_time(char text[32], double seconds);

#endif
