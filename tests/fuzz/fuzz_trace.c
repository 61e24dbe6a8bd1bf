/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: the trace reader. Frames carry checksums, so the bytes are tried as they are, and also as the
 * payload of a frame of events and of one of facts in a file that is otherwise good. The answer is a
 * snapshot whose every index leads somewhere, or an error that says something.
 */

#include "format/trace_build.h"

#include "walk_judged.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_trace(struct plim_str bytes)
{
    struct plim_source_bytes state;
    struct plim_source source = plim_source_bytes(&state, bytes);
    struct plim_read_limits limits = {.memory = UINT64_C(512) << 20};
    struct plim_snapshot snapshot;
    struct plim_err err;
    plim_err_clear(&err);
    if (plim_trace_read(&source, &limits, NULL, &snapshot, &err) == PLIM_OK) {
        walk_judged(&snapshot, walk_snapshot(&snapshot));
        for (size_t i = 0; i < snapshot.devices.n; i++) {
            const struct plim_outside *o = &snapshot.devices.items[i].outside;
            struct plim_outside_sums sums = plim_outside_at(o, SIZE_MAX);
            DEMAND(o->known && (!sums.has_sample || o->samples.n > 0));
        }
        plim_snapshot_fini(&snapshot);
    } else {
        DEMAND(err.status != PLIM_OK && err.message[0] != '\0');
    }
}

/* A file with these bytes as the payload of one frame. */
static void read_payload(enum plim_frame_kind kind, struct plim_str payload)
{
    struct plim_buf file = {0};
    uint8_t head[PLIM_TRACE_HEAD_BYTES];
    plim__trace_head_put(head, 1);
    plim_buf_add(&file, (struct plim_str){(const char *)head, sizeof(head)});
    /* the first byte is how many items there are */
    uint32_t items = payload.n > 0 ? (uint8_t)payload.p[0] : 0;
    struct plim_trace_frame frame = {.kind = (uint8_t)kind,
                                     .items = items < payload.n ? items : (uint32_t)payload.n};
    if (plim__frame_put(&file, &frame, plim_str_skip(payload, 1), NULL) == PLIM_OK) {
        read_trace(plim_buf_str(&file));
    }
    plim_buf_fini(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_str bytes = {(const char *)data, size};
    read_trace(bytes);
    read_payload(PLIM_FRAME_EVENTS, bytes);
    read_payload(PLIM_FRAME_FACTS, bytes);
    return 0;
}
