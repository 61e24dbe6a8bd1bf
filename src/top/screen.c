/* SPDX-License-Identifier: Apache-2.0 */

/* The terminal, by ncurses: cells go out, keys come in. Only what has changed is sent. */

#include "top/top.h"

#include <curses.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <term.h>
#include <unistd.h>

struct plim_top_screen {
    SCREEN *curses;
    bool color;
};

static const struct {
    short color;
    attr_t attribute;
} styles[] = {
#define NORMAL                          A_NORMAL
#define DIM                             A_DIM
#define BOLD                            A_BOLD
#define REVERSE                         A_REVERSE
#define PLIM__X(name, color, attribute) {color, attribute},
    PLIM_TOP_STYLE_MAP(PLIM__X)
#undef PLIM__X
};

static void open_colors(void)
{
    (void)start_color();
    (void)use_default_colors();
    for (int i = 0; i < PLIM_TOP_STYLES; i++) {
        (void)init_pair((short)(i + 1), styles[i].color, -1);
    }
}

/* Asked before newterm(), which forgets to give memory back when it does not know the terminal (ncurses 6.4). */
static bool is_known_kind(void)
{
    int found = 0;
    bool known = setupterm(NULL, STDOUT_FILENO, &found) == OK;
    if (known) {
        (void)del_curterm(cur_term);
    }
    return known;
}

enum plim_status plim__top_screen_open(bool color, struct plim_top_screen **out,
                                       struct plim_err *err)
{
    struct plim_top_screen *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a screen");
    }
    bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    s->curses = terminal && is_known_kind() ? newterm(NULL, stdout, stdin) : NULL;
    if (s->curses == NULL) {
        free(s);
        plim__err_set(err, PLIM_E_UNSUPPORTED,
                      terminal ? "the terminal is of an unknown kind (TERM)"
                               : "standard input and output are no terminal");
        plim__err_hint(err, "plimsoll top --batch needs none, --once ends after one screen");
        return PLIM_E_UNSUPPORTED;
    }
    (void)set_escdelay(50);
    (void)cbreak();
    (void)noecho();
    (void)nonl(); /* Enter is told from Ctrl-J */
    (void)keypad(stdscr, TRUE);
    (void)nodelay(stdscr, TRUE);
    (void)curs_set(0);
    s->color = color && has_colors();
    if (s->color) {
        open_colors();
    }
    *out = s;
    return PLIM_OK;
}

void plim__top_screen_close(struct plim_top_screen *s)
{
    if (s != NULL) {
        (void)endwin();
        delscreen(s->curses);
        free(s);
    }
}

void plim__top_screen_size(const struct plim_top_screen *s, unsigned *width, unsigned *height)
{
    (void)s;
    int high = 0, wide = 0;
    getmaxyx(stdscr, high, wide);
    *width = wide > 0 ? (unsigned)wide : 0;
    *height = high > 0 ? (unsigned)high : 0;
}

void plim__top_screen_show(struct plim_top_screen *s, const struct plim_top_canvas *c, bool whole)
{
    (void)erase();
    for (unsigned y = 0; y < c->height; y++) {
        for (unsigned x = 0; x < c->width; x++) {
            const struct plim_top_cell *cell = &c->cells.items[(size_t)y * c->width + x];
            wchar_t text[2] = {(wchar_t)cell->ch, L'\0'};
            cchar_t out;
            bool blank = cell->ch == ' ' && styles[cell->style].attribute != A_REVERSE;
            if (cell->ch == 0 || blank) {
                continue;
            }
            short pair = (short)(s->color ? cell->style + 1 : 0);
            if (setcchar(&out, text, styles[cell->style].attribute, pair, NULL) == OK) {
                (void)mvadd_wch((int)y, (int)x, &out);
            }
        }
    }
    if (whole) {
        (void)clearok(stdscr, TRUE);
    }
    (void)refresh();
}

static uint32_t special(wint_t key)
{
    static const struct {
        int curses;
        uint32_t key;
    } keys[] = {{KEY_UP, PLIM_TOP_KEY_UP},         {KEY_DOWN, PLIM_TOP_KEY_DOWN},
                {KEY_PPAGE, PLIM_TOP_KEY_PAGE_UP}, {KEY_NPAGE, PLIM_TOP_KEY_PAGE_DOWN},
                {KEY_HOME, PLIM_TOP_KEY_HOME},     {KEY_END, PLIM_TOP_KEY_END},
                {KEY_ENTER, PLIM_TOP_KEY_ENTER},   {KEY_BACKSPACE, PLIM_TOP_KEY_BACKSPACE},
                {KEY_DC, PLIM_TOP_KEY_BACKSPACE}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if ((wint_t)keys[i].curses == key) {
            return keys[i].key;
        }
    }
    if (key >= (wint_t)KEY_F(1) && key <= (wint_t)KEY_F(12)) {
        return PLIM_TOP_KEY_F0 + (uint32_t)(key - (wint_t)KEY_F0);
    }
    return 0;
}

bool plim__top_screen_key(struct plim_top_screen *s, uint64_t timeout_ns, uint32_t *key,
                          bool *resized)
{
    (void)s;
    wint_t got = 0;
    *key = 0;
    *resized = false;
    int kind = get_wch(&got); /* one may wait inside curses */
    if (kind == ERR) {
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        int ready = poll(&p, 1, (int)(timeout_ns / 1000000) + (timeout_ns > 0));
        if (ready > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) {
            return false;
        }
        kind = ready > 0 || (ready < 0 && errno == EINTR) ? get_wch(&got) : ERR;
        if (kind == ERR && ready > 0) {
            char probe;
            return read(STDIN_FILENO, &probe, 0) ==
                   0; /* readable without a key: its end, unless a part of one */
        }
    }
    if (kind == OK) {
        *key = got == 0x1b ? (uint32_t)PLIM_TOP_KEY_ESCAPE : (uint32_t)got;
    } else if (kind == KEY_CODE_YES && got == (wint_t)KEY_RESIZE) {
        *resized = true;
    } else if (kind == KEY_CODE_YES) {
        *key = special(got);
    }
    return true;
}
