/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings: sizes, cards, and the keys that may be changed while running.
 *
 * Read from the environment once (PLIMSOLL_SIM_<KEY>, see docs/design/simgpu.md), or given by
 * plimsoll_sim_set. No locale, no stdio, no malloc: this may run inside any process.
 */

#include "sim.h"
#include <string.h>
#include <strings.h>

static const struct {
    const char *key, *name;
    uint64_t total, nvml_mib;
    int cc, sms, sm_threads, smem_sm_kib, smem_optin_kib, l2_kib, bus_bits;
} presets[] = {
#define SIM_CARD(key, name, total_mib, nvml_mib, cc, sms, threads, smem_sm, smem_optin, l2_kib,    \
                 bus)                                                                              \
    {key,    name, (uint64_t)(total_mib) << 20, nvml_mib, cc, sms, threads, smem_sm, smem_optin,   \
     l2_kib, bus},
#include "cards.def"
#undef SIM_CARD
};

static bool unit_of(const char *text, uint64_t *unit)
{
    /* All binary, as GPU programs mean it: 24GB is 24GiB. */
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"K", 1ull << 10},
                 {"KB", 1ull << 10},
                 {"KiB", 1ull << 10},
                 {"M", 1ull << 20},
                 {"MB", 1ull << 20},
                 {"MiB", 1ull << 20},
                 {"G", 1ull << 30},
                 {"GB", 1ull << 30},
                 {"GiB", 1ull << 30},
                 {"T", 1ull << 40},
                 {"TB", 1ull << 40},
                 {"TiB", 1ull << 40}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcasecmp(text, units[i].name) == 0) {
            *unit = units[i].bytes;
            return true;
        }
    }
    return false;
}

/* "12.5" in front of a unit; NULL when there is no number. */
struct number {
    uint64_t whole, part, scale; /* whole + part / scale */
};

static const char *number_of(const char *text, struct number *out)
{
    uint64_t whole = 0, part = 0, scale = 1;
    const char *p = text;
    if (*p < '0' || *p > '9') {
        return NULL;
    }
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole)) {
            return NULL;
        }
    }
    if (*p == '.') {
        for (p++; *p >= '0' && *p <= '9'; p++) {
            if (scale < 1000000) { /* finer digits do not matter */
                part = part * 10 + (uint64_t)(*p - '0');
                scale *= 10;
            }
        }
    }
    while (*p == ' ') {
        p++;
    }
    *out = (struct number){.whole = whole, .part = part, .scale = scale};
    return p;
}

static bool in_units(const struct number *n, uint64_t unit, uint64_t *out)
{
    uint64_t fraction = unit / n->scale * n->part + unit % n->scale * n->part / n->scale;
    return !__builtin_mul_overflow(n->whole, unit, out) &&
           !__builtin_add_overflow(*out, fraction, out);
}

bool sim_parse_size(const char *text, uint64_t *bytes)
{
    struct number n;
    uint64_t unit;
    const char *rest = number_of(text, &n);
    return rest != NULL && unit_of(rest, &unit) && in_units(&n, unit, bytes);
}

bool sim_parse_time(const char *text, uint64_t *ns)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"", 1}, {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
    struct number n;
    const char *rest = number_of(text, &n);
    for (size_t i = 0; rest != NULL && i < sizeof units / sizeof *units; i++) {
        if (strcmp(rest, units[i].name) == 0) {
            return in_units(&n, units[i].ns, ns);
        }
    }
    return false;
}

/*
 * What a context costs: memory behind the stacks of all threads that can be resident, 1 KiB each by
 * default (216 MiB on an A100, which matches a published measurement), and 192 MiB for channels, page
 * tables and the driver's own code: field values are 250 to 450 MiB on an A100 and 450 to 650 on an
 * H100 with lazily loaded kernels. An estimate; PLIMSOLL_SIM_CONTEXT replaces it.
 */
static uint64_t context_cost(const struct sim_card *card)
{
    uint64_t stacks = (uint64_t)card->sm_threads * (uint64_t)card->sms * 1024;
    return ((stacks + SIM_PAGE - 1) & ~(SIM_PAGE - 1)) + (192ull << 20);
}

static bool preset(const char *key, struct sim_card *card)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcasecmp(key, presets[i].key) == 0) {
            *card = (struct sim_card){.total = presets[i].total,
                                      .nvml_total = presets[i].nvml_mib << 20,
                                      .cc_major = presets[i].cc / 10,
                                      .cc_minor = presets[i].cc % 10,
                                      .sms = presets[i].sms,
                                      .sm_threads = presets[i].sm_threads,
                                      .smem_sm = presets[i].smem_sm_kib << 10,
                                      .smem_optin = presets[i].smem_optin_kib << 10,
                                      .l2_bytes = presets[i].l2_kib << 10,
                                      .bus_bits = presets[i].bus_bits};
            card->context = context_cost(card);
            strncpy(card->key, presets[i].key, sizeof card->key - 1);
            strncpy(card->name, presets[i].name, sizeof card->name - 1);
            return true;
        }
    }
    return false;
}

/* One card of a list: a preset's key, a size (a data-centre card of that size), or KEY@SIZE: that card
 * with another size. */
static bool one_card(char *text, struct sim_card *card)
{
    uint64_t bytes;
    char *at = strchr(text, '@');
    if (at == NULL && preset(text, card)) {
        return true;
    }
    if (!sim_parse_size(at == NULL ? text : at + 1, &bytes) || bytes < (64 << 20) ||
        bytes > (1ull << 43)) {
        return false;
    }
    if (at != NULL) {
        *at = '\0';
    }
    if (!preset(at == NULL ? "h100-80gb" : text, card)) {
        return false;
    }
    if (at != NULL) {
        *at = '@';
    } else {
        strncpy(card->name, "Simulated GPU", sizeof card->name);
    }
    card->total = bytes & ~(SIM_PAGE - 1);
    card->nvml_total = card->total;
    size_t len = strlen(text) < sizeof card->key ? strlen(text) : sizeof card->key - 1;
    memset(card->key, 0, sizeof card->key);
    memcpy(card->key, text, len);
    return true;
}

int sim_parse_cards(const char *text, struct sim_card cards[SIM_MAX_DEVICES])
{
    int n = 0;
    while (*text != '\0') {
        char item[64];
        size_t len = strcspn(text, ",");
        if (len == 0 || len >= sizeof item) {
            return 0;
        }
        memcpy(item, text, len);
        item[len] = '\0';
        text += len + (text[len] == ',');
        int count = 1;
        char *star = strchr(item, '*');
        if (star != NULL) {
            *star = '\0';
            count = 0;
            for (const char *p = star + 1; *p != '\0'; p++) {
                if (*p < '0' || *p > '9' || count > SIM_MAX_DEVICES) {
                    return 0;
                }
                count = count * 10 + (*p - '0');
            }
        }
        struct sim_card card;
        if (count < 1 || n + count > SIM_MAX_DEVICES || !one_card(item, &card)) {
            return 0;
        }
        for (int i = 0; i < count; i++) {
            cards[n++] = card;
        }
    }
    return n;
}

static bool pick(const char *value, const char *const *names, _Atomic int *out)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(value, names[i]) == 0) {
            atomic_store(out, i);
            return true;
        }
    }
    return false;
}

/* "SIZE" for every device, or "SIZE,SIZE,..." for one each. */
static bool per_device(const char *value, void (*set)(int device, uint64_t bytes))
{
    uint64_t bytes = 0;
    int n = sim_device_count();
    for (int d = 0; d < n; d++) {
        if (*value != '\0') {
            char item[32];
            size_t len = strcspn(value, ",");
            if (len >= sizeof item) {
                return false;
            }
            memcpy(item, value, len);
            item[len] = '\0';
            if (!sim_parse_size(item, &bytes)) {
                return false;
            }
            value += len + (value[len] == ',');
        }
        set(d, bytes);
    }
    return true;
}

int sim_set(const char *key, const char *value)
{
    static const char *const policies[] = {"ascending", "descending", "first-fit", NULL};
    static const char *const clocks[] = {"calls", "manual", "wall", NULL};
    uint64_t n;
    bool ok = false;
    if (strcmp(key, "addresses") == 0) {
        ok = pick(value, policies, &sim_config.policy);
    } else if (strcmp(key, "clock") == 0) {
        ok = pick(value, clocks, &sim_config.clock);
    } else if (strcmp(key, "event_lag") == 0) {
        ok = sim_parse_size(value, &n);
        if (ok) {
            atomic_store(&sim_config.event_lag, n);
        }
    } else if (strcmp(key, "kernel_time") == 0) {
        ok = sim_parse_time(value, &n) && n <= 60000000000u; /* of one kernel */
        if (ok) {
            atomic_store(&sim_config.kernel_ns, n);
        }
    } else if (strcmp(key, "graph_node") == 0) {
        ok = sim_parse_size(value, &sim_config.graph_node);
    } else if (strcmp(key, "max_mappings") == 0) {
        ok = sim_parse_size(value, &sim_config.max_mappings);
    } else if (strcmp(key, "cost") == 0) {
        ok = strcmp(value, "0") == 0 || strcmp(value, "1") == 0;
        sim_config.cost = ok && *value == '1';
    } else if (strcmp(key, "external") == 0) {
        ok = per_device(value, sim_set_external);
    } else if (strcmp(key, "limit") == 0) {
        ok = per_device(value, sim_set_limit);
    } else if (strcmp(key, "fail") == 0) {
        ok = sim_fail_parse(value) == SIM_OK;
    } else if (strcmp(key, "log") == 0) {
        ok = sim_log_open(value) == SIM_OK;
    }
    return ok ? SIM_OK : SIM_E_VALUE;
}
