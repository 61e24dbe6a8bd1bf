/* SPDX-License-Identifier: Apache-2.0 */

/* Cards by name. See card.h, runtime/simgpu/cards.def and slices.def. */

#include "serving/card.h"

#include "base/num.h"

#include <string.h>
#include <strings.h>

struct row {
    const char *key, *name;
    uint64_t total_mib, nvml_mib;
    uint32_t cc, sms, threads;
    bool unified;
};

static const struct row rows[] = {
#define SIM_CARD(key, name, total_mib, nvml_mib, cc, sms, threads, ...)                            \
    {key, name, total_mib, nvml_mib, cc, sms, threads, false},
#include "../../runtime/simgpu/cards.def"
#undef SIM_CARD
#define SLICE(...)
#define UNIFIED(key, name, mib, cc, sms, threads) {key, name, mib, mib, cc, sms, threads, true},
#include "serving/slices.def"
#undef SLICE
#undef UNIFIED
};

static const struct {
    const char *card, *profile;
    uint32_t gib_hundredths, sms;
} slices[] = {
#define SLICE(card, profile, gib_hundredths, sms) {card, profile, gib_hundredths, sms},
#define UNIFIED(...)
#include "serving/slices.def"
#undef SLICE
#undef UNIFIED
};

/* Stacks of all resident threads, 1 KiB each, and 192 MiB for channels, page tables and code: the estimate of
 * the simulated device (runtime/simgpu/sim_config.c context_cost). */
static uint64_t context_of(const struct row *row, uint32_t sms)
{
    return plim_round_up((uint64_t)row->threads * sms * PLIM_KIB, 2 * PLIM_MIB) + 192 * PLIM_MIB;
}

static struct plim_card card_of(const struct row *row)
{
    return (struct plim_card){
        .key = row->key,
        .name = row->name,
        .total = row->total_mib * PLIM_MIB,
        .nvml = row->nvml_mib * PLIM_MIB,
        .cc = row->cc,
        .sms = row->sms,
        .context = context_of(row, row->sms),
        .unified = row->unified,
        .source = row->unified ? "slices.def" : "cards.def",
    };
}

static const struct row *row_of(const char *key, size_t n)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        if (strlen(rows[i].key) == n && strncasecmp(rows[i].key, key, n) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

/* The first keys that contain what was typed, else a pointer to the list. */
static enum plim_status unknown(const char *text, struct plim_err *err)
{
    enum plim_status st = plim__fail(err, PLIM_E_USAGE, "unknown card %s", text);
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        if (strncasecmp(rows[i].key, text, 4) == 0) {
            plim__err_hint(err, "did you mean %s? `plimsoll plan --list-gpus` lists all",
                           rows[i].key);
            return st;
        }
    }
    plim__err_hint(err, "`plimsoll plan --list-gpus` lists what is known; --device-memory, --cc, "
                        "--sms and --context describe any other");
    return st;
}

enum plim_status plim_card_find(const char *text, struct plim_card *out, struct plim_err *err)
{
    const char *slash = strchr(text, '/');
    size_t n = slash != NULL ? (size_t)(slash - text) : strlen(text);
    const struct row *row = row_of(text, n);
    if (row == NULL) {
        return unknown(text, err);
    }
    struct plim_card card = card_of(row);
    if (slash == NULL) {
        *out = card;
        return PLIM_OK;
    }
    for (size_t i = 0; i < PLIM_COUNT_OF(slices); i++) {
        if (strcasecmp(slices[i].card, row->key) == 0 &&
            strcasecmp(slices[i].profile, slash + 1) == 0) {
            card.total = (uint64_t)slices[i].gib_hundredths * PLIM_GIB / 100;
            card.nvml = card.total;
            card.sms = slices[i].sms;
            card.context = context_of(row, card.sms);
            card.slice = true;
            card.source = "slices.def";
            *out = card;
            return PLIM_OK;
        }
    }
    return plim__fail(err, PLIM_E_USAGE, "%s has no MIG profile %s", row->key, slash + 1);
}

const char *plim_card_like(const struct plim_card *card)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(rows); i++) {
        uint64_t total = rows[i].total_mib * PLIM_MIB;
        uint64_t apart = plim_max_u64(total, card->total) - plim_min_u64(total, card->total);
        if (rows[i].cc == card->cc && rows[i].sms == card->sms && apart < total / 10) {
            return rows[i].name;
        }
    }
    return NULL;
}

bool plim_card_at(size_t i, struct plim_card *out)
{
    for (size_t a = 0; a < PLIM_COUNT_OF(rows); a++) {
        size_t before = 0;
        for (size_t b = 0; b < PLIM_COUNT_OF(rows); b++) {
            before += rows[b].total_mib < rows[a].total_mib ||
                      (rows[b].total_mib == rows[a].total_mib && b < a);
        }
        if (before == i) {
            *out = card_of(&rows[a]);
            return true;
        }
    }
    return false;
}
