/* SPDX-License-Identifier: Apache-2.0 */
/* A diagnosis for the terminal. */

#include "report/diagnosis.h"

#include "base/bytes.h"
#include "base/num.h"

#include <stdio.h>

#define BLAME_ROWS 5u
#define PIN_ROWS   3u

static void blame(struct plim_buf *out, const struct plim_diagnosis *d,
                  const struct plim_text_style *style)
{
    uint64_t live = plim_max_u64(d->set.ledger.allocated.bytes, 1);
    if (d->blame.n == 0) {
        return;
    }
    plim_text_heading(out, "Who holds the live bytes", style);
    for (size_t i = 0; i < d->blame.n && i < BLAME_ROWS; i++) {
        const struct plim_blame_row *row = &d->blame.items[i];
        char bytes[PLIM_BYTES_TEXT], first[96];
        snprintf(first, sizeof(first), "%11s %3.0f%%  ", plim_bytes_format(bytes, row->bytes),
                 100.0 * (double)row->bytes / (double)live);
        struct plim_buf line = {0};
        plim_buf_printf(&line, "%s [%s%s, %u block%s]", row->site,
                        row->suspect ? "LEAK SUSPECT, " : "",
                        row->category == PLIM_CATEGORY_UNKNOWN ? "kind unknown"
                                                               : plim_category_text(row->category),
                        row->blocks, row->blocks == 1 ? "" : "s");
        plim_text_wrap(out, first, line.p ? line.p : "", style);
        plim_buf_fini(&line);
    }
}

static void findings(struct plim_buf *out, const struct plim_snapshot *snapshot,
                     const struct plim_text_style *style)
{
    if (snapshot->findings.n == 0) {
        return;
    }
    plim_text_heading(out, "Contradictions in the snapshot", style);
    for (size_t i = 0; i < snapshot->findings.n && i < 3; i++) {
        const struct plim_finding *f = &snapshot->findings.items[i];
        struct plim_str where = plim_intern_str(&snapshot->strings, f->where);
        struct plim_str text = plim_intern_str(&snapshot->strings, f->text);
        struct plim_buf line = {0};
        plim_buf_printf(&line, "%.*s: %.*s", PLIM_STR_ARG(where), PLIM_STR_ARG(text));
        plim_text_wrap(out, "  - ", line.p ? line.p : "", style);
        plim_buf_fini(&line);
    }
    uint64_t more = plim_sub_sat(snapshot->findings.n, 3) + snapshot->findings_dropped;
    if (more > 0) {
        plim_buf_printf(out, "  - and %llu more (--format json lists them)\n",
                        (unsigned long long)more);
    }
}

void plim_text_diagnosis(struct plim_buf *out, const struct plim_snapshot *snapshot,
                         const struct plim_diagnosis *d, const struct plim_text_style *style)
{
    plim_text_verdict(out, &d->set.verdict, style);
    plim_text_ledger(out, &d->set.ledger, style);
    plim_text_counterfactuals(out, &d->set, style);
    plim_text_evidence(out, &d->set, style);
    plim_text_advice(out, &d->set, style);
    blame(out, d, style);
    findings(out, snapshot, style);
    plim_text_unknowns(out, &d->set, style);
}
