/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints everything that was read from a snapshot as a few lines of facts and checksums, for a
 * comparison with the same facts computed from Python's own pickle module (test_snapshots.py).
 *
 *   snapshot_facts FILE...      one JSON object per line; errors as {"error": ...}
 */

#include "format/snapshot_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <zlib.h>

static uint32_t crc(uint32_t sum, const char *text)
{
    return (uint32_t)crc32(sum, (const unsigned char *)text, (unsigned)strlen(text));
}

static uint32_t crc_number(uint32_t sum, uint64_t v)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRIu64 "|", v);
    return crc(sum, text);
}

static uint32_t crc_id(const struct plim_snapshot *s, uint32_t sum, uint32_t id)
{
    struct plim_str str = plim_intern_str(&s->strings, id);
    sum = (uint32_t)crc32(sum, (const unsigned char *)str.p, (unsigned)str.n);
    return crc(sum, id == PLIM_NO_ID ? "-|" : "|");
}

static uint32_t crc_stack(const struct plim_snapshot *s, uint32_t sum, uint32_t stack)
{
    size_t n;
    const uint32_t *ids = plim_stacks_frames(&s->stacks, stack, &n);
    for (size_t i = 0; i < n; i++) {
        struct plim_frame f = s->stacks.frames.items[ids[i]];
        sum = crc_number(crc_id(s, crc_id(s, sum, f.name), f.file), f.line);
    }
    return crc(sum, stack == PLIM_NO_STACK ? "none\n" : "\n");
}

static uint32_t crc_pool(const struct plim_snapshot *s, uint32_t sum, uint16_t pool)
{
    if (pool == PLIM_NO_POOL) {
        return crc(sum, "-|");
    }
    return crc_number(crc_number(sum, s->pools.items[pool].a), s->pools.items[pool].b);
}

static uint32_t crc_events(const struct plim_snapshot *s, const struct plim_trace *t)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < t->events.n; i++) {
        const struct plim_event *e = &t->events.items[i];
        struct plim_note note = {PLIM_NO_ID, PLIM_NO_ID};
        if (e->note != PLIM_NO_ID) {
            note = s->notes.items[e->note];
        }
        sum = crc(sum, plim_action_text((enum plim_action)e->action));
        sum = crc_number(crc_number(crc_number(sum, e->addr), e->size), e->time_us);
        sum = crc_number(sum, s->streams.n ? (uint64_t)s->streams.items[e->stream] : 0);
        sum = crc_id(s, crc_id(s, crc_pool(s, sum, e->pool), note.compile_context),
                     note.user_metadata);
        sum = crc_stack(s, sum, e->stack);
    }
    return sum;
}

static uint32_t crc_heap(const struct plim_snapshot *s, const struct plim_heap *h)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < h->segments.n; i++) {
        const struct plim_segment *g = &h->segments.items[i];
        sum = crc_number(crc_number(sum, g->addr), g->size);
        sum = crc_number(sum, s->streams.n ? (uint64_t)s->streams.items[g->stream] : 0);
        sum = crc_pool(s, crc_number(crc_number(sum, g->small), g->expandable), g->pool);
        sum = crc_stack(s, sum, g->stack);
        for (uint32_t k = 0; k < g->n_blocks; k++) {
            const struct plim_block *b = &h->blocks.items[g->first_block + k];
            sum = crc_number(crc_number(crc_number(sum, b->addr), b->size), b->requested);
            sum = crc_stack(s, crc_number(sum, b->state), b->stack);
        }
    }
    return sum;
}

static void print_device(const struct plim_snapshot *s, const struct plim_device *d)
{
    uint64_t bytes[3] = {0}, reserved = 0;
    for (size_t i = 0; i < d->heap.segments.n; i++) {
        reserved += d->heap.segments.items[i].size;
    }
    for (size_t i = 0; i < d->heap.blocks.n; i++) {
        bytes[d->heap.blocks.items[i].state] += d->heap.blocks.items[i].size;
    }
    printf("{\"segments\": %zu, \"blocks\": %zu, \"reserved\": %" PRIu64 ", \"inactive\": %" PRIu64
           ", \"allocated\": %" PRIu64 ", \"pending\": %" PRIu64
           ", \"events\": %zu, \"actions\": {",
           d->heap.segments.n, d->heap.blocks.n, reserved, bytes[PLIM_BLOCK_INACTIVE],
           bytes[PLIM_BLOCK_ALLOCATED], bytes[PLIM_BLOCK_PENDING_FREE], d->trace.events.n);
    const char *sep = "";
    for (unsigned a = 0; a < PLIM_ACTION_COUNT; a++) {
        if (d->trace.by_action[a]) {
            printf("%s\"%s\": %" PRIu64, sep, plim_action_text((enum plim_action)a),
                   d->trace.by_action[a]);
            sep = ", ";
        }
    }
    printf("}, \"has_times\": %s, \"heap_crc\": %u, \"trace_crc\": %u}",
           d->trace.has_times ? "true" : "false", crc_heap(s, &d->heap), crc_events(s, &d->trace));
}

static void print_facts(const struct plim_snapshot *s)
{
    uint32_t notes = 0;
    printf("{\"devices\": [");
    for (size_t i = 0; i < s->devices.n; i++) {
        printf("%s", i ? ", " : "");
        print_device(s, &s->devices.items[i]);
    }
    for (size_t i = 0; i < s->annotations.n; i++) {
        const struct plim_annotation *a = &s->annotations.items[i];
        notes = crc_id(s, notes, a->name);
        notes = crc_number(crc_number(crc_number(notes, a->device), a->time_us), a->end);
    }
    uint32_t conf = s->settings.known ? crc_id(s, 0, s->settings.conf) : 0;
    printf(
        "], \"annotations\": %zu, \"annotations_crc\": %u, \"conf_crc\": %u, \"findings\": %" PRIu64
        ", \"unknown_keys\": %zu, \"layout\": \"%s\", \"container\": \"%s\", \"bytes\": %" PRIu64
        "}\n",
        s->annotations.n, notes, conf, s->findings.n + s->findings_dropped, s->unknown_keys.n,
        s->layout, s->container, s->source_bytes);
}

int main(int argc, char **argv)
{
    bool verbose = argc > 1 && strcmp(argv[1], "-v") == 0;
    for (int i = verbose ? 2 : 1; i < argc; i++) {
        struct plim_snapshot snapshot;
        struct plim_err err;
        char text[640];
        if (plim_snapshot_read_file(argv[i], NULL, &snapshot, &err) != PLIM_OK) {
            plim_err_format(&err, text, sizeof(text));
            fprintf(stderr, "%s\n", text);
            printf("{\"error\": \"%s\", \"pos\": %lld}\n", plim_status_name(err.status),
                   (long long)err.pos);
            continue;
        }
        print_facts(&snapshot);
        for (size_t k = 0; verbose && k < snapshot.findings.n; k++) {
            struct plim_str where =
                plim_intern_str(&snapshot.strings, snapshot.findings.items[k].where);
            struct plim_str what =
                plim_intern_str(&snapshot.strings, snapshot.findings.items[k].text);
            fprintf(stderr, "%.*s: %.*s\n", PLIM_STR_ARG(where), PLIM_STR_ARG(what));
        }
        plim_snapshot_fini(&snapshot);
    }
    return 0;
}
