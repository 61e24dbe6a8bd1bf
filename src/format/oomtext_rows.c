/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The grammars: one row for each text that programs print when memory runs out, or that is mistaken
 * for it, and for each circumstance that helps to judge it. The pattern language is described at
 * struct plim_oom_row. Wording was taken from the programs' sources and from public reports; the
 * versions named by PyTorch clauses may be off by one minor release.
 *
 * The rows are in the .def files, included below into one array.
 * When the matches of two rows overlap, the one that contains the other counts. Keep rows sorted by
 * program; the order carries no meaning, but for the `format` of clauses: the last one that matches
 * names the version.
 */

#include "format/oomtext_internal.h"

#include "base/num.h"

#define ROW(format, family, role, meaning, pattern)                                                \
    {                                                                                              \
        format, PLIM_OOM_FAMILY_##family, PLIM_OOM_##role, PLIM_OOM_MEANS_##meaning, pattern       \
    }
#define FAIL(format, family, meaning, pattern) ROW(format, family, FAILURE, meaning, pattern)
#define CLAUSE(family, pattern)                ROW(NULL, family, CLAUSE, NOTHING, pattern)
#define VERSION(family, versions, pattern)     ROW(versions, family, CLAUSE, NOTHING, pattern)
#define NEAR(meaning, pattern)                 ROW(NULL, ANY, NEAR, meaning, pattern)
#define SESSION(meaning, pattern)              ROW(NULL, ANY, SESSION, meaning, pattern)
#define BESIDE(meaning, pattern)               ROW(NULL, ANY, BESIDE, meaning, pattern)
#define HEADER(meaning, pattern)               ROW(NULL, ANY, HEADER, meaning, pattern)
#define TABLE(pattern)                         ROW(NULL, ANY, TABLE, NOTHING, pattern)

static const struct plim_oom_row rows[] = {
#include "format/oomtext_rows_engine.def"
#include "format/oomtext_rows_framework.def"
#include "format/oomtext_rows_host.def"
#include "format/oomtext_rows_torch.def"
};

const struct plim_oom_row *plim__oom_rows(size_t *n)
{
    *n = PLIM_COUNT_OF(rows);
    return rows;
}
