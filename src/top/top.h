/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TOP_TOP_H
#define PLIM_TOP_TOP_H

/*
 * plimsoll top: device memory in a terminal, by device, engine and process, again and again.
 * It looks for itself, or shows what a running monitor sees (plimsoll watch), with its findings.
 * The only header of this folder that the command line includes.
 * Threads: the caller's; one more asks engines, when there are some.
 */

#include "observe/place.h"
#include "top/layout.h"

struct plim_top_options {
    const char
        *from; /* address of a monitor: [http://]HOST:PORT, unix:PATH; NULL: look for oneself */
    const char *samples; /* a file of samples instead of drivers (device/sampler.h), or NULL */
    const struct plim_place *engines; /* [n_engines], as in observe/collect.h */
    size_t n_engines;
    const struct plim_place *logs; /* [n_logs] */
    size_t n_logs;
    bool discover;
    bool batch;     /* no terminal: each screen as plain text to `write` */
    bool ascii;     /* nothing but ASCII */
    bool color;     /* colours may be used */
    unsigned width; /* of a batch's lines */
    uint64_t steps; /* end after so many screens; 0: never */
    struct plim_top_view view;
    const char *version;
    /* Takes a batch's screen; not PLIM_OK ends it. */
    enum plim_status (*write)(void *arg, struct plim_str text, struct plim_err *err);
    void *write_arg;
};

/**
 * plim_top_run() - until the user ends it, or `steps` are done.
 * Errors: PLIM_E_UNSUPPORTED standard output is no terminal, or of an unknown kind; PLIM_E_NOINPUT the monitor does
 * not answer, or there is no such file of samples; PLIM_E_NOMEM; those of the collector.
 */
PLIM_MUST_USE enum plim_status plim_top_run(const struct plim_top_options *options,
                                            struct plim_err *err);

/** plim_top_sort() - the column of a name as the command line has it ("memory"); COLUMNS: there is none. */
enum plim_top_column plim_top_sort(const char *name);

/* ---- where states come from (source.c, remote.c) ---- */

struct plim_top_source;

PLIM_MUST_USE enum plim_status plim__top_source_open(const struct plim_top_options *options,
                                                     struct plim_top_source **out,
                                                     struct plim_err *err);

/** plim__top_source_take() - a new state; borrowed until the next take.
 * Errors: PLIM_E_NOMEM; PLIM_E_NOINPUT, PLIM_E_DATA of a monitor: the last state stays. */
PLIM_MUST_USE enum plim_status plim__top_source_take(struct plim_top_source *source,
                                                     const struct plim_state **out,
                                                     struct plim_err *err);
void plim__top_source_close(struct plim_top_source *source); /* NULL is allowed */

struct plim_top_remote;

PLIM_MUST_USE enum plim_status
plim__top_remote_open(const char *address, struct plim_top_remote **out, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__top_remote_take(struct plim_top_remote *remote,
                                                     const struct plim_state **out,
                                                     struct plim_err *err);
void plim__top_remote_close(struct plim_top_remote *remote); /* NULL is allowed */

/* ---- the terminal (screen.c) ---- */

struct plim_top_screen;

/** plim__top_screen_open() - take the terminal. Errors: PLIM_E_UNSUPPORTED. */
PLIM_MUST_USE enum plim_status plim__top_screen_open(bool color, struct plim_top_screen **out,
                                                     struct plim_err *err);
void plim__top_screen_size(const struct plim_top_screen *screen, unsigned *width, unsigned *height);
void plim__top_screen_show(struct plim_top_screen *screen, const struct plim_top_canvas *canvas,
                           bool whole);

/** plim__top_screen_key() - wait at most so long for a key or a new size. Returns false when the terminal is gone;
 * *key 0: nothing came, or only the size changed (*resized). */
bool plim__top_screen_key(struct plim_top_screen *screen, uint64_t timeout_ns, uint32_t *key,
                          bool *resized);
void plim__top_screen_close(
    struct plim_top_screen *screen); /* NULL is allowed; gives the terminal back */

#endif
