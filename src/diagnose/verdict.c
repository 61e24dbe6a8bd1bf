/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of the tables in verdict.h. */

#include "diagnose/verdict.h"

void plim_finding_set_fini(struct plim_finding_set *set)
{
    plim_vec_fini(&set->counterfactuals);
    plim_vec_fini(&set->evidence);
    plim_vec_fini(&set->advice);
    plim_vec_fini(&set->unknowns);
}

const char *plim_class_text(enum plim_class cls)
{
    static const char *const texts[] = {
#define PLIM__X(name, text, meaning) text,
        PLIM_CLASS_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)cls < PLIM_CLASS_COUNT ? texts[cls] : "unknown";
}

const char *plim_subclass_text(enum plim_subclass subclass)
{
    static const char *const texts[] = {
#define PLIM__X(name, cls, text, meaning) text,
        PLIM_SUBCLASS_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)subclass < PLIM_SUBCLASS_COUNT ? texts[subclass] : "";
}

const char *plim_how_text(enum plim_how how)
{
    static const char *const texts[] = {
#define PLIM__X(name, text) text,
        PLIM_HOW_MAP(PLIM__X)
#undef PLIM__X
    };
    return (unsigned)how < PLIM_HOW_COUNT ? texts[how] : "unknown";
}

unsigned plim_ledger_part_after(const struct plim_ledger *ledger, uint64_t bytes, unsigned owner)
{
    unsigned best = PLIM_OWNERS;
    for (unsigned i = 0; i < PLIM_OWNERS; i++) {
        const struct plim_amount *part = &ledger->part[i];
        bool behind = part->bytes < bytes || (part->bytes == bytes && i > owner);
        if (plim_known(*part) && part->bytes > 0 && behind &&
            (best == PLIM_OWNERS || part->bytes > ledger->part[best].bytes)) {
            best = i;
        }
    }
    return best;
}

const char *plim_ledger_part_label(unsigned owner)
{
    static const char *const labels[] = {
#define PLIM__X(name, text, library) text,
        PLIM_OWNER_MAP(PLIM__X)
#undef PLIM__X
    };
    return owner == PLIM_OWNER_UNKNOWN || owner >= PLIM_OWNERS ? "not attributed" : labels[owner];
}
