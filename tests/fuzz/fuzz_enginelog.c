/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: an engine's log. Whatever the bytes are, reading them comes to an end, tells the same in pieces as in
 * one, and what failed is printable.
 */

#include "observe/engine_log.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct plim_engine_told read_log(struct plim_str text, size_t step)
{
    struct plim_engine_told told = {0};
    struct plim_engine_log *log = plim_engine_log_new();
    struct plim_happening h;
    while (log != NULL && text.n > 0) {
        size_t n = text.n < step ? text.n : step;
        if (plim_engine_log_feed(log, (struct plim_str){text.p, n}, true, NULL) != PLIM_OK) {
            break;
        }
        text = plim_str_skip(text, n);
    }
    if (log != NULL) {
        told = plim_engine_log_told(log);
        while (plim_engine_log_take(log, &h)) {
            for (const char *p = h.text; *p != '\0'; p++) {
                if ((unsigned char)*p < 0x20) {
                    abort();
                }
            }
        }
    }
    plim_engine_log_free(log);
    return told;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_str text = {(const char *)data, size};
    struct plim_engine_told whole = read_log(text, size + 1), pieces = read_log(text, 11);
    if (whole.component_valid != pieces.component_valid || whole.kv_tokens != pieces.kv_tokens ||
        memcmp(whole.component, pieces.component, sizeof(whole.component)) != 0) {
        abort();
    }
    return 0;
}
