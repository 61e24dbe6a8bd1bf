/* SPDX-License-Identifier: Apache-2.0 */
/* A world of computable series; see store_model.h. */

#include "store_model.h"
#include "unit.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *const model_figures[MODEL_FIGURES] = {"used", "steady", "ratio", "seldom"};

double model_value(unsigned s, unsigned figure, uint64_t t)
{
    uint64_t mix = (s + 1) * UINT64_C(0x9e3779b97f4a7c15) + t * UINT64_C(0xbf58476d1ce4e5b9);
    mix = (mix ^ mix >> 31) * UINT64_C(0x94d049bb133111eb);
    switch (figure) {
    case 0:
        return (double)((UINT64_C(40) << 30) + (t / 7 + mix % 3) * (2 << 20) * (s + 1));
    case 1:
        return (double)((UINT64_C(80) << 30) + s);
    case 2:
        return (double)(mix % 1000003) / 1000003.0 - 0.25;
    default:
        return t / 50 % 3 == s % 3 ? (double)(t % 11) : NAN;
    }
}

void model_batch(struct plim_batch *batch, unsigned subjects, uint64_t t)
{
    plim_batch_reset(batch, MODEL_START + t * NS, (1000 + t) * NS);
    for (unsigned s = 0; s < subjects; s++) {
        char key[16];
        snprintf(key, sizeof(key), "s%u", s);
        assert_int_equal(plim_batch_subject(batch, "thing", key, "{\"a\":1}", NULL), PLIM_OK);
        for (unsigned f = 0; f < MODEL_FIGURES; f++) {
            assert_int_equal(plim_batch_point(batch, (uint16_t)f, model_value(s, f, t), NULL),
                             PLIM_OK);
        }
    }
}

static char folder[256], path[512];

const char *model_folder(void)
{
    const char *in = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/plim-store-XXXXXX", in != NULL ? in : "/tmp");
    assert_non_null(mkdtemp(folder));
    return folder;
}

const char *model_path(const char *name)
{
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

void model_folder_remove(void)
{
    struct dirent *entry;
    DIR *dir = opendir(folder);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            unlink(model_path(entry->d_name));
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    rmdir(folder);
}
