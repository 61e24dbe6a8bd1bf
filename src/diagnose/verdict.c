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
