/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of --engine by their texts. See budget.h. */

#include "serving/budget.h"

#include "base/num.h"

#include <string.h>

static const struct {
    const char *text, *release;
} engines[] = {
#define PLIM__X(name, text, release) {text, release},
    PLIM_ENGINE_MAP(PLIM__X)
#undef PLIM__X
};

bool plim_engine_find(const char *text, enum plim_engine *out, const char **release)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(engines); i++) {
        if (strcmp(text, engines[i].text) == 0) {
            *out = (enum plim_engine)i;
            if (release != NULL) {
                *release = engines[i].release;
            }
            return true;
        }
    }
    return false;
}

const char *plim_engine_text(enum plim_engine engine)
{
    return engines[(size_t)engine < PLIM_COUNT_OF(engines) ? engine : 0].text;
}
