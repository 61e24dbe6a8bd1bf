/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: the JSON texts that ride in a snapshot: the facts of its maker, and a note of the program.
 * Whatever they are, each is read or refused with a status, and what was read is within its bounds.
 */

#include "format/capture.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool good)
{
    if (!good) {
        abort();
    }
}

static void look_at(const struct plim_tags *tags)
{
    must(tags->n <= PLIM_CAPTURE_TAGS);
    for (uint32_t i = 0; i < tags->n; i++) {
        must(strlen(tags->items[i].name) <= PLIM_TAG_BYTES);
        must(strlen(tags->items[i].text) <= PLIM_TAG_BYTES);
        must(strpbrk(tags->items[i].text, "\n\r\x1b") == NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_str text = {(const char *)data, size};
    struct plim_arena arena;
    struct plim_capture capture;
    struct plim_tags tags;
    plim_arena_init(&arena, 1 << 20);
    if (plim_capture_read(text, &arena, &capture, NULL) == PLIM_OK) {
        look_at(&capture.tags);
        must(capture.n_devices <= PLIM_CAPTURE_DEVICES);
        (void)plim_capture_total(&capture, capture.device);
    }
    if (plim_tags_read(text, &arena, &tags, NULL) == PLIM_OK) {
        look_at(&tags);
    }
    plim_arena_fini(&arena);
    return 0;
}
