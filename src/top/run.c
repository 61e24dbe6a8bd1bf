/* SPDX-License-Identifier: Apache-2.0 */

/* The loop: take a state, draw it, wait for keys until the next one is due. */

#include "top/top.h"

#include "base/clock.h"
#include "base/num.h"

#include <ctype.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCH_WIDTH 100

struct run {
    const struct plim_top_options *options;
    struct plim_top_source *source;
    struct plim_top_screen *screen; /* NULL: a batch */
    struct plim_top_model model;
    struct plim_top_view view;
    struct plim_top_list list;
    struct plim_top_canvas canvas;
    char note[120];
};

enum plim_top_column plim_top_sort(const char *name)
{
    static const char *const names[] = {
#define PLIM__X(column, title, width, rank, help) #column,
        PLIM_TOP_COLUMN_MAP(PLIM__X)
#undef PLIM__X
    };
    for (unsigned i = 0; i < PLIM_TOP_COLUMNS; i++) {
        size_t k = 0;
        while (names[i][k] != '\0' && toupper((unsigned char)name[k]) == names[i][k]) {
            k++;
        }
        if (names[i][k] == '\0' && name[k] == '\0') {
            return (enum plim_top_column)i;
        }
    }
    return PLIM_TOP_COLUMNS;
}

/* A new state into the model. A monitor that does not answer is said, and the last state stays on the screen. */
static enum plim_status take(struct run *r, struct plim_err *err)
{
    const struct plim_state *state = NULL;
    struct plim_err why = {0};
    enum plim_status st = plim__top_source_take(r->source, &state, &why);
    if (st != PLIM_OK && (st == PLIM_E_NOMEM || r->model.state == NULL || r->screen == NULL)) {
        if (err != NULL) {
            *err = why;
        }
        return st;
    }
    if (st != PLIM_OK) {
        (void)snprintf(r->note, sizeof(r->note), "%.110s", why.message);
        r->view.note = r->note;
        return PLIM_OK;
    }
    r->view.note = NULL;
    return plim_top_model_update(&r->model, state, err);
}

/* Lines that a batch's screen needs to show everything. */
static unsigned batch_height(const struct run *r)
{
    size_t lines = 3 + r->model.devices.n * 2 + r->model.processes.n + r->model.state->n_findings +
                   r->model.state->now->engines.n;
    return (unsigned)plim_min_u64(lines + 3, 20000);
}

static enum plim_status draw(struct run *r, bool whole, struct plim_err *err)
{
    unsigned width = r->options->width > 0 ? r->options->width : BATCH_WIDTH;
    unsigned height = 0;
    if (r->screen != NULL) {
        plim__top_screen_size(r->screen, &width, &height);
    } else {
        height = batch_height(r);
    }
    r->canvas.ascii = r->options->ascii;
    PLIM_TRY(plim_top_canvas_size(&r->canvas, width, height, err));
    PLIM_TRY(plim_top_list_make(&r->model, &r->view, &r->list, err));
    plim_top_layout(&r->model, &r->view, &r->list, &r->canvas);
    if (r->screen != NULL) {
        plim__top_screen_show(r->screen, &r->canvas, whole);
        return PLIM_OK;
    }
    struct plim_buf text = {0};
    plim_top_canvas_text(&r->canvas, &text);
    enum plim_status st = plim_buf_status(&text, err);
    if (st == PLIM_OK) {
        st = r->options->write(r->options->write_arg, plim_buf_str(&text), err);
    }
    plim_buf_fini(&text);
    return st;
}

/* ---- a batch ---- */

static enum plim_status run_batch(struct run *r, struct plim_err *err)
{
    uint64_t due = plim_mono_ns();
    for (uint64_t i = 0; r->options->steps == 0 || i < r->options->steps; i++) {
        struct timespec until = plim_timespec(due);
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
        }
        due = plim_max_u64(due + r->view.interval_ns, plim_mono_ns());
        if (i > 0) {
            PLIM_TRY(r->options->write(r->options->write_arg, PLIM_STR("\n"), err));
        }
        PLIM_TRY(take(r, err));
        PLIM_TRY(draw(r, false, err));
    }
    return PLIM_OK;
}

/* ---- a terminal ---- */

/* Keys until something is due. Returns false to end. */
static bool wait_for_keys(struct run *r, uint64_t *due, enum plim_status *st, struct plim_err *err)
{
    for (;;) {
        uint64_t now = plim_mono_ns();
        uint32_t key;
        bool resized;
        if (!r->view.paused && now >= *due) {
            return true;
        }
        uint64_t wait = r->view.paused ? PLIM_SECOND_NS : *due - now;
        if (!plim__top_screen_key(r->screen, wait, &key, &resized)) {
            return false;
        }
        enum plim_top_action action = resized ? PLIM_TOP_REDRAW : PLIM_TOP_NOTHING;
        if (key != 0) {
            action = plim_top_key(&r->model, &r->view, &r->list, key);
        }
        if (action == PLIM_TOP_QUIT) {
            return false;
        }
        if (action == PLIM_TOP_SAMPLE) {
            *due = now;
            return true;
        }
        if (action == PLIM_TOP_RETIME) {
            *due = now + r->view.interval_ns;
        }
        if (action != PLIM_TOP_NOTHING) {
            *st = draw(r, action == PLIM_TOP_REDRAW, err);
            if (*st != PLIM_OK) {
                return false;
            }
        }
    }
}

static enum plim_status run_screen(struct run *r, struct plim_err *err)
{
    enum plim_status st = PLIM_OK;
    for (uint64_t i = 0; r->options->steps == 0 || i < r->options->steps; i++) {
        uint64_t due = plim_mono_ns() + r->view.interval_ns;
        PLIM_TRY(take(r, err));
        PLIM_TRY(draw(r, false, err));
        if (!wait_for_keys(r, &due, &st, err)) {
            return st;
        }
    }
    return PLIM_OK;
}

enum plim_status plim_top_run(const struct plim_top_options *options, struct plim_err *err)
{
    struct run r = {.options = options, .view = options->view};
    struct plim_top_options own = *options;
    r.options = &own;
    r.view.interval_ns = plim_max_u64(r.view.interval_ns, PLIM_SECOND_NS / 10);
    (void)setlocale(LC_CTYPE, ""); // NOLINT(concurrency-mt-unsafe): before any thread starts
    own.ascii |= strcmp(nl_langinfo(CODESET), "UTF-8") != 0; // NOLINT(concurrency-mt-unsafe)
    enum plim_status st = plim__top_source_open(&own, &r.source, err);
    if (st == PLIM_OK && own.batch) {
        r.view.batch = true;
        st = run_batch(&r, err);
    } else if (st == PLIM_OK) {
        st = plim__top_screen_open(own.color, &r.screen, err);
        st = st == PLIM_OK ? run_screen(&r, err) : st;
        plim__top_screen_close(r.screen);
    }
    plim__top_source_close(r.source);
    plim_top_model_fini(&r.model);
    plim_top_list_fini(&r.list);
    plim_top_canvas_fini(&r.canvas);
    return st;
}
