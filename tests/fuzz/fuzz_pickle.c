/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: the pickle machine. Each input is read twice, once with the short way for trace entries
 * and once without; both must come to the same snapshot, or both to an error. NULs behind the input
 * make the short way possible up to its last entry.
 */

#include "format/pickle.h"

#include "walk_snapshot.h"

#define TAIL 2048u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* One reading: its status, and the sum over the snapshot when there is one. */
static enum plim_status read_once(struct plim_str bytes, bool no_shapes, uint64_t *sum)
{
    struct plim_source_bytes state;
    struct plim_source source = plim_source_bytes(&state, bytes);
    struct plim_read_limits limits = {UINT64_C(512) << 20, 1 << 20, 1 << 20, 32};
    struct plim_window w;
    struct plim_build b;
    struct plim_snapshot snapshot;
    struct plim_value root;
    struct plim_err err;
    unsigned protocol;
    DEMAND(plim__window_init(&w, &source, &err) == PLIM_OK);
    DEMAND(plim__build_init(&b, &limits, 0, &err) == PLIM_OK);
    b.no_shapes = no_shapes;
    enum plim_status st = plim__pickle_run(&w, &b, &root, &protocol, &err);
    if (st == PLIM_OK) {
        st = plim__build_finish(&b, root, &snapshot, &err);
    }
    *sum = 0;
    if (st == PLIM_OK) {
        *sum = walk_snapshot(&snapshot);
        plim_snapshot_fini(&snapshot);
    }
    plim__build_fini(&b);
    plim__window_fini(&w);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t quick, general;
    char *bytes = calloc(1, size + TAIL);
    DEMAND(bytes);
    if (size > 0) {
        memcpy(bytes, data, size);
    }
    struct plim_str all = {bytes, size + TAIL};
    enum plim_status a = read_once(all, false, &quick);
    enum plim_status b = read_once(all, true, &general);
    DEMAND((a == PLIM_OK) == (b == PLIM_OK) && quick == general);
    free(bytes);
    return 0;
}
