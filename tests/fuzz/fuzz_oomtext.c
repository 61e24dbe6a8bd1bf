/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: the message reader and the judge. Whatever the bytes are, they are explained or refused;
 * each finding has a verdict with evidence, and the three renderings come to an end.
 */

#include "diagnose/message.h"
#include "report/explanation.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void render(const struct plim_oom_scan *scan, const struct plim_message *message)
{
    struct plim_buf out = {0};
    struct plim_jsonw w;
    struct plim_text_style style = {.unicode = true};
    plim_text_explanation(&out, scan, message, &style);
    plim_markdown_explanation(&out, scan, message);
    plim_jsonw_init(&w, &out, true);
    plim_json_explanation(&w, scan, message);
    plim_buf_fini(&out);
}

static void check(const struct plim_oom_scan *scan, const struct plim_message *message)
{
    if (message->sets.n != scan->events.n || scan->events.n > PLIM_OOM_EVENTS) {
        abort();
    }
    for (size_t i = 0; i < message->sets.n; i++) {
        const struct plim_finding_set *set = &message->sets.items[i];
        const struct plim_oom_event *event = &scan->events.items[i];
        if (set->evidence.n == 0 || !set->verdict.summary || set->verdict.confidence <= 0 ||
            set->verdict.confidence > 1 || event->line == 0 || event->last_line < event->line) {
            abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_source_bytes state;
    struct plim_source source =
        plim_source_bytes(&state, (struct plim_str){(const char *)data, size});
    struct plim_oom_scan scan;
    struct plim_message message;
    struct plim_err err;
    if (plim_oom_scan(&source, &scan, &err) == PLIM_OK) {
        if (plim_message_judge(&scan, &message, &err) == PLIM_OK) {
            check(&scan, &message);
            render(&scan, &message);
        }
        plim_message_fini(&message);
    }
    plim_oom_scan_fini(&scan);
    return 0;
}
