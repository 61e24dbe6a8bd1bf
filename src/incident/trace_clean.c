/* SPDX-License-Identifier: Apache-2.0 */

/* Frame by frame: facts are taken apart and put together again, events are copied. See
 * trace_clean.h. */

#include "incident/trace_clean.h"

#include "base/num.h"
#include "format/trace_parts.h"
#include "format/trace_scan.h"
#include "format/trace_write.h"

#include <stdio.h>

static struct plim_str clean(struct plim_redactor *r, const char *file, struct plim_str s)
{
    const char *z = plim_arena_sayf(r->arena, "%.*s", PLIM_STR_ARG(s));
    return plim_str_from(plim_redact_z(r, file, z));
}

static bool put_fact(struct plim_redactor *r, const char *file, struct plim_fact *f,
                     struct plim_buf *out)
{
    uint32_t process = (uint32_t)f->process;
    switch (f->kind) {
    case PLIM_FACT_PROCESS: {
        const char *name = plim_redact_z(r, file, f->as_process.name);
        (void)snprintf(f->as_process.name, sizeof(f->as_process.name), "%s", name);
        plim__fact_process(out, process, &f->as_process);
        return true;
    }
    case PLIM_FACT_CALL:
        plim__fact_call(out, process, f->number, f->name);
        return true;
    case PLIM_FACT_LIBRARY:
        f->library.path = clean(r, file, f->library.path);
        plim__fact_library(out, process, f->number, &f->library);
        return true;
    case PLIM_FACT_STACK:
        plim__fact_stack(out, process, f->number, f->stack.frames, f->stack.n);
        return true;
    case PLIM_FACT_TOTAL:
        plim__fact_total(out, process, &f->total);
        return true;
    case PLIM_FACT_END:
        plim__fact_end(out, process, &f->end);
        return true;
    case PLIM_FACT_STATS:
        plim__fact_stats(out, process, &f->stats);
        return true;
    case PLIM_FACT_RUN:
        plim__fact_run(out, &f->run);
        return true;
    default:
        return false;
    }
}

static enum plim_status copy_facts(struct plim_redactor *r, const char *file,
                                   struct plim_trace_frame frame, struct plim_str payload,
                                   struct plim_trace_writer *w, struct plim_err *err)
{
    struct plim_cursor c = plim__cursor(payload);
    struct plim_fact fact;
    struct plim_buf out = {0};
    uint32_t items = 0;
    while (plim__fact_get(&c, &fact)) {
        items += put_fact(r, file, &fact, &out);
    }
    frame.items = items;
    enum plim_status st = plim_buf_status(&out, err);
    if (st == PLIM_OK && items > 0) {
        st = plim_trace_append(w, frame, plim_buf_str(&out), err);
    }
    plim_buf_fini(&out);
    return st;
}

static bool is_old(const struct plim_trace_frame *frame, uint64_t since_ns)
{
    uint64_t last = plim_add_sat(frame->first_ns, (uint64_t)frame->span_us * 1000);
    return frame->span_us != UINT32_MAX && last < since_ns;
}

static enum plim_status copy_frames(struct plim_redactor *r, const char *file,
                                    struct plim_trace_scan *scan, uint64_t since_ns,
                                    struct plim_trace_writer *w, bool *cut, struct plim_err *err)
{
    struct plim_trace_frame frame;
    struct plim_str payload;
    bool more = true;
    for (;;) {
        PLIM_TRY(plim_trace_scan_next(scan, &more, &frame, &payload, err));
        if (!more) {
            return plim_trace_seal(w, err);
        }
        if (frame.kind == PLIM_FRAME_FACTS) {
            PLIM_TRY(copy_facts(r, file, frame, payload, w, err));
        } else if (frame.kind == PLIM_FRAME_EVENTS && is_old(&frame, since_ns)) {
            *cut = true;
        } else if (frame.kind == PLIM_FRAME_EVENTS) {
            PLIM_TRY(plim_trace_append(w, frame, payload, err));
        }
    }
}

enum plim_status plim__trace_clean(struct plim_redactor *r, const char *from, const char *to,
                                   const char *file, uint64_t since_ns, bool *cut,
                                   struct plim_err *err)
{
    struct plim_source source;
    struct plim_trace_scan scan;
    struct plim_trace_writer writer;
    *cut = false;
    PLIM_TRY(plim_source_open(from, &source, err));
    enum plim_status st = plim_trace_scan_open(&scan, &source, err);
    if (st == PLIM_OK) {
        st = plim_trace_create(to, scan.head.created_ns, &writer, err);
        if (st == PLIM_OK) {
            st = copy_frames(r, file, &scan, since_ns, &writer, cut, err);
            plim_trace_close(&writer);
        }
        plim_trace_scan_close(&scan);
    }
    plim_source_close(&source);
    return st;
}
