/* SPDX-License-Identifier: Apache-2.0 */
/* See seating.h. */

#include "format/seating.h"

#include "base/file.h"

#include <stdlib.h>

void plim_seating_write(const struct plim_seating *p, struct plim_buf *out)
{
    plim_buf_text(out, PLIM_SEATING_HEAD "\nlanes ");
    plim_buf_u64(out, p->lanes);
    plim_buf_text(out, "\nrequests ");
    plim_buf_u64(out, p->n);
    plim_buf_text(out, "\nrepeat ");
    plim_buf_u64(out, p->repeat);
    plim_buf_char(out, '\n');
    for (uint32_t i = 0; i < p->n; i++) {
        const struct plim_seating_request *r = &p->requests[i];
        plim_buf_u64(out, r->lane);
        plim_buf_char(out, ' ');
        plim_buf_u64(out, r->size);
        plim_buf_char(out, ' ');
        if (r->place == PLIM_SEATING_NONE) {
            plim_buf_char(out, '-');
        } else {
            plim_buf_u64(out, r->place);
        }
        plim_buf_char(out, '\n');
    }
    plim_buf_text(out, "end\n");
}

enum plim_status plim_seating_read(const char *path, struct plim_seating *out, struct plim_err *err)
{
    struct plim_seating_fault fault = {0};
    struct plim_str text;
    PLIM_TRY(plim_file_read(path, PLIM_SEATING_FILE, &text, err));
    bool good = plim_seating_parse(text.p, text.n, out, &fault);
    free((void *)(uintptr_t)text.p);
    if (good) {
        return PLIM_OK;
    }
    plim__fail(err, PLIM_E_DATA, "%s:%llu: %s", path, (unsigned long long)fault.line, fault.what);
    plim__err_hint(err, "make one: plimsoll replay SNAPSHOT --allocator plimsoll:plan "
                        "--write-plan FILE");
    return PLIM_E_DATA;
}
