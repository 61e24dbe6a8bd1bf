/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: the snapshot reader, every wrapping included. Whatever the bytes are, the answer is a
 * snapshot whose every index leads somewhere, or an error that says something.
 */

#include "format/snapshot_read.h"

#include "walk_judged.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_source_bytes state;
    struct plim_source source =
        plim_source_bytes(&state, (struct plim_str){(const char *)data, size});
    struct plim_read_limits limits = {.memory = UINT64_C(512) << 20, .nesting = 32};
    struct plim_snapshot snapshot;
    struct plim_err err;
    plim_err_clear(&err);
    if (plim_snapshot_read(&source, &limits, &snapshot, &err) == PLIM_OK) {
        walk_judged(&snapshot, walk_snapshot(&snapshot));
        plim_snapshot_fini(&snapshot);
    } else {
        DEMAND(err.status != PLIM_OK && err.message[0] != '\0');
    }
    plim_source_close(&source);
    return 0;
}
