/* SPDX-License-Identifier: Apache-2.0 */
/* One walk over the trace, with an answer for each different stack kept; see passes.h. */

#include "diagnose/passes.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define MANY      3u  /* so many times is "again and again"; the second may be a warm-up */
#define MAX_LINES 64u /* different lines of the model's outermost function that are told apart */

/* What a stack is, seen from the call in question. Values from 0 are indices of `lines`. */
#define OUTSIDE     (-1) /* not below the line that calls the model */
#define NOT_ASKED   (-2)
#define NOT_COUNTED (-3) /* below, but in a line that found no room */
#define MAX_DEPTH   8u   /* pass functions within each other that are asked, most */

struct walk {
    const struct plim_snapshot *snapshot;
    const uint32_t *outer;     /* frame ids of the stack in question, innermost first */
    size_t n_outer;            /* of them */
    size_t pass;               /* index in outer of the pass function's frame */
    int16_t *kinds;            /* owned: stack id -> OUTSIDE, NOT_ASKED ... or a line */
    uint32_t lines[MAX_LINES]; /* frame ids of the pass function, in order of appearance */
    uint32_t runs[MAX_LINES];  /* how often each of them was entered */
    uint32_t n_lines;
    uint32_t visits; /* how often the calling line was entered from elsewhere */
};

static struct plim_str name_of(const struct plim_snapshot *snapshot, uint32_t frame)
{
    return plim_intern_str(&snapshot->strings, snapshot->stacks.frames.items[frame].name);
}

/* A frame of Python code: native frames between two of them change with the interpreter's mood. */
static bool is_python(const struct plim_snapshot *snapshot, uint32_t frame)
{
    struct plim_str file =
        plim_intern_str(&snapshot->strings, snapshot->stacks.frames.items[frame].file);
    return file.n > 0 &&
           (file.p[0] == '<' || (file.n > 3 && memcmp(file.p + file.n - 3, ".py", 3) == 0));
}

static bool generates(struct plim_str name)
{
    return plim_str_eq(name, PLIM_STR("generate")) || plim_str_eq(name, PLIM_STR("_sample"));
}

/* The outermost frame of a pass function, or n. */
static size_t find_pass(const struct plim_snapshot *snapshot, const uint32_t *frames, size_t n)
{
    for (size_t i = n; i-- > 0;) {
        struct plim_str name = name_of(snapshot, frames[i]);
        if ((plim_str_eq(name, PLIM_STR("forward")) || generates(name)) &&
            is_python(snapshot, frames[i])) {
            return i;
        }
    }
    return n;
}

static int16_t line_of(struct walk *w, uint32_t frame)
{
    for (uint32_t i = 0; i < w->n_lines; i++) {
        if (w->lines[i] == frame) {
            return (int16_t)i;
        }
    }
    if (w->n_lines == MAX_LINES) {
        return NOT_COUNTED;
    }
    w->lines[w->n_lines] = frame;
    return (int16_t)w->n_lines++;
}

/* The next Python frame inside frames[at], or SIZE_MAX; at = n starts at the outermost. */
static size_t next_python(const struct plim_snapshot *snapshot, const uint32_t *frames, size_t at)
{
    while (at-- > 0) {
        if (is_python(snapshot, frames[at])) {
            return at;
        }
    }
    return SIZE_MAX;
}

/* Whether the stack lies below the same calls as the one in question, and in which line of the model. */
static int16_t kind_of_stack(struct walk *w, uint32_t stack)
{
    size_t n;
    const uint32_t *frames = plim_stacks_frames(&w->snapshot->stacks, stack, &n);
    size_t here = next_python(w->snapshot, frames, n);
    size_t there = next_python(w->snapshot, w->outer, w->n_outer);
    while (here != SIZE_MAX && there != w->pass) {
        if (there == SIZE_MAX || frames[here] != w->outer[there]) {
            return OUTSIDE;
        }
        here = next_python(w->snapshot, frames, here);
        there = next_python(w->snapshot, w->outer, there);
    }
    if (here == SIZE_MAX) {
        return OUTSIDE;
    }
    const struct plim_frame *a = &w->snapshot->stacks.frames.items[frames[here]];
    const struct plim_frame *b = &w->snapshot->stacks.frames.items[w->outer[w->pass]];
    return a->name == b->name && a->file == b->file ? line_of(w, frames[here]) : OUTSIDE;
}

/* What the event's stack is; NOT_ASKED for events that tell nothing. */
static int16_t kind_of_event(struct walk *w, const struct plim_event *e)
{
    if (e->action != PLIM_ACTION_ALLOC || e->stack == PLIM_STACK_EMPTY ||
        e->stack >= w->snapshot->stacks.stacks.n) {
        return NOT_ASKED; /* threads of the backward pass have no Python stack */
    }
    if (w->kinds[e->stack] == NOT_ASKED) {
        w->kinds[e->stack] = kind_of_stack(w, e->stack);
    }
    return w->kinds[e->stack];
}

/* Back to where the pass began in which event `from` lies. */
static size_t start_of_pass(struct walk *w, const struct plim_trace *trace, size_t from)
{
    while (from > 0 && kind_of_event(w, &trace->events.items[from - 1]) != OUTSIDE) {
        from--;
    }
    return from;
}

static void count_entries(struct walk *w, const struct plim_trace *trace, size_t from, size_t to)
{
    int16_t last = OUTSIDE;
    for (size_t i = from; i < to; i++) {
        int16_t kind = kind_of_event(w, &trace->events.items[i]);
        if (kind == NOT_ASKED) {
            continue;
        }
        w->visits += last == OUTSIDE && kind != OUTSIDE;
        if (kind >= 0 && kind != last) {
            w->runs[kind]++;
        }
        last = kind;
    }
}

/*
 * In many passes nearly every line recurs (a buffer may be made once); in one pass at least the lines
 * around its loop do not. Only at the outermost call do recurring lines mean many passes: further in
 * they may be the layers'.
 */
static enum plim_passes conclude(const struct walk *w, bool outermost)
{
    uint32_t rare = 0;
    for (uint32_t i = 0; i < w->n_lines; i++) {
        rare += w->runs[i] < MANY;
    }
    if (outermost && w->visits >= MANY) {
        return PLIM_PASSES_MANY;
    }
    if (w->n_lines < 2 || generates(name_of(w->snapshot, w->outer[w->pass]))) {
        return PLIM_PASSES_UNCLEAR; /* a generator's own loop goes over all its lines */
    }
    if (rare * 3 >= w->n_lines) {
        return PLIM_PASSES_ONE;
    }
    return outermost ? PLIM_PASSES_MANY : PLIM_PASSES_UNCLEAR;
}

/* Ask at the outermost pass function; while all that is seen of it is one line, further in. */
static enum plim_passes ask(struct walk *w, const struct plim_trace *trace, size_t from, size_t to)
{
    for (uint32_t depth = 0; depth < MAX_DEPTH && w->pass < w->n_outer; depth++) {
        for (size_t i = 0; i < w->snapshot->stacks.stacks.n; i++) {
            w->kinds[i] = NOT_ASKED;
        }
        memset(w->runs, 0, sizeof(w->runs));
        w->n_lines = w->visits = 0;
        count_entries(w, trace, start_of_pass(w, trace, from), to);
        enum plim_passes answer = conclude(w, depth == 0);
        if (answer != PLIM_PASSES_UNCLEAR || w->n_lines != 1) {
            return answer;
        }
        size_t inner = find_pass(w->snapshot, w->outer, w->pass);
        w->pass = inner < w->pass ? inner : w->n_outer;
    }
    return PLIM_PASSES_UNCLEAR;
}

/* Layers that plain code calls through checkpoint(): their outputs stay for the backward pass. */
static bool is_checkpointed(const struct walk *w)
{
    for (size_t i = w->pass; i < w->n_outer; i++) {
        const struct plim_frame *f = &w->snapshot->stacks.frames.items[w->outer[i]];
        struct plim_str file = plim_intern_str(&w->snapshot->strings, f->file);
        if (plim_str_find(file, PLIM_STR("torch/utils/checkpoint.py")) != SIZE_MAX) {
            return true;
        }
    }
    return false;
}

enum plim_status plim_passes_of(const struct plim_snapshot *snapshot,
                                const struct plim_trace *trace, uint32_t stack, size_t from,
                                size_t to, enum plim_passes *out, struct plim_err *err)
{
    struct walk w = {.snapshot = snapshot};
    size_t stacks = snapshot->stacks.stacks.n;
    w.outer = plim_stacks_frames(&snapshot->stacks, stack, &w.n_outer);
    w.pass = find_pass(snapshot, w.outer, w.n_outer);
    *out = PLIM_PASSES_UNCLEAR;
    if (w.pass == w.n_outer) {
        return PLIM_OK;
    }
    if (is_checkpointed(&w)) {
        *out = PLIM_PASSES_ONE;
        return PLIM_OK;
    }
    w.kinds = malloc(stacks * sizeof(w.kinds[0]));
    if (!w.kinds) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for %zu stacks", stacks);
    }
    *out = ask(&w, trace, from, to);
    free(w.kinds);
    return PLIM_OK;
}
