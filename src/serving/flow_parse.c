/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Presets and descriptions of made traffic.
 *
 * The presets' figures were measured on the published traces (data of the traces: Azure 2023 under
 * CC-BY-4.0, Patel et al., ISCA 2024; Mooncake under Apache-2.0, Qin et al., FAST 2025). The two-state
 * processes were fitted to the coefficient of variation, the busiest ten seconds and the dispersion of
 * counts over 10 and 60 seconds; docs/design/soak.md has both sides. "pictures" is no measurement: sizes
 * that image services offer, one request a second with gamma gaps.
 */

#include "serving/flow.h"

#include "base/num.h"

#include <math.h>
#include <string.h>

#define QUANTILES                                                                                  \
    {                                                                                              \
        0, 0.01, 0.05, 0.10, 0.25, 0.5, 0.75, 0.90, 0.95, 0.99, 0.999, 1                           \
    }

static const struct {
    const char *name;
    struct plim_flow_source source;
} presets[] = {
    {"azure-conv",
     {.process = {PLIM_PROCESS_MMPP, 5.530, 0, 1.36, 50, 50},
      .prompt = {12, QUANTILES, {2, 29, 181, 207, 396, 1020, 1189, 2735, 4083, 4142, 6212, 14050}},
      .output = {12, QUANTILES, {7, 16, 41, 54, 85, 129, 395, 424, 451, 601, 954, 1000}}}},
    {"azure-code",
     {.process = {PLIM_PROCESS_MMPP, 2.567, 0, 12.5, 3.2, 36.8},
      .prompt = {12, QUANTILES, {3, 17, 75, 147, 578, 1469, 2745, 5186, 7302, 7436, 7437, 7437}},
      .output = {12, QUANTILES, {6, 6, 6, 7, 9, 13, 24, 55, 90, 252, 824, 1899}}}},
    {"mooncake",
     {.process = {PLIM_PROCESS_MMPP, 3.401, 0, 1.3, 6, 6},
      .prompt = {12,
                 QUANTILES,
                 {891, 894, 901, 964, 2307, 6909, 15368, 27367, 39552, 85401, 121301, 126195}},
      .output = {12, QUANTILES, {1, 3, 10, 24, 157, 350, 472, 597, 698, 1120, 2000, 2000}}}},
    {"mooncake-synthetic",
     {.process = {PLIM_PROCESS_MMPP, 3.907, 0, 1.25, 50, 50},
      .prompt = {12,
                 QUANTILES,
                 {13, 16, 22, 30, 277, 11587, 23175, 38615, 48835, 66456, 191373, 191378}},
      .output = {12, QUANTILES, {1, 2, 2, 4, 11, 69, 250, 389, 519, 768, 813, 893}}}},
    {"pictures",
     {.process = {PLIM_PROCESS_GAMMA, 0.2, 2, 0, 0, 0},
      .prompt = {2, {0, 1}, {8, 77}},
      .output = {2, {0, 1}, {1, 1}},
      .side = {5, {0, 0.2, 0.5, 0.8, 1}, {512, 768, 1024, 1280, 2048}}}},
};

const char *plim_flow_presets(void)
{
    return "azure-conv, azure-code, mooncake, mooncake-synthetic, pictures";
}

static const struct plim_flow_source *preset(struct plim_str name)
{
    for (size_t i = 0; i < PLIM_COUNT_OF(presets); i++) {
        if (plim_str_eq(name, plim_str_from(presets[i].name))) {
            return &presets[i].source;
        }
    }
    return NULL;
}

#define STATE_LEAST_S 0.001 /* a simulation goes through every change of state */

enum plim_status plim_process_check(const struct plim_process *p, struct plim_err *err)
{
    double share = p->burst_s / (p->burst_s + p->quiet_s);
    if (!(p->rate > 0 && p->rate <= 1e6)) {
        return plim__fail(err, PLIM_E_USAGE,
                          "the rate must be above 0 and at most 1,000,000 a second");
    }
    if ((p->kind == PLIM_PROCESS_GAMMA || p->kind == PLIM_PROCESS_WEIBULL) &&
        !(p->cv >= 0.05 && p->cv <= 50)) {
        return plim__fail(err, PLIM_E_USAGE, "cv must be from 0.05 to 50");
    }
    bool brief = !(p->burst_s >= STATE_LEAST_S && p->quiet_s >= STATE_LEAST_S);
    if (p->kind == PLIM_PROCESS_MMPP && (brief || p->burst_s > 1e9 || p->quiet_s > 1e9)) {
        return plim__fail(err, PLIM_E_USAGE,
                          "burst_s and quiet_s must be from 0.001 to 1e9 seconds");
    }
    if (p->kind == PLIM_PROCESS_MMPP && !(p->burst >= 1 && p->burst * share <= 1.0000001)) {
        plim__fail(err, PLIM_E_USAGE, "these bursts hold more than all arrivals");
        plim__err_hint(err, "burst * burst_s / (burst_s + quiet_s) must be at most 1");
        return PLIM_E_USAGE;
    }
    return PLIM_OK;
}

static bool number(struct plim_str s, double *out)
{
    char buf[40];
    char *end = NULL;
    if (s.n == 0 || s.n >= sizeof buf) {
        return false;
    }
    memcpy(buf, s.p, s.n);
    buf[s.n] = '\0';
    *out = strtod(buf, &end);
    return end == buf + s.n && isfinite(*out);
}

/* "1000~4000": median and 99th percentile of a lognormal distribution, as a table; "1000" alone: always. */
static bool lognormal(struct plim_str s, struct plim_table *out)
{
    static const double shares[] = QUANTILES;
    static const double z[] = {-3.5,   -2.3263, -1.6449, -1.2816, -0.6745, 0,
                               0.6745, 1.2816,  1.6449,  2.3263,  3.0902,  3.5};
    size_t cut = plim_str_find(s, PLIM_STR("~"));
    double median, high;
    bool spread = cut != SIZE_MAX;
    if (!number(spread ? (struct plim_str){s.p, cut} : s, &median) || median < 1 || median > 16e6) {
        return false;
    }
    high = median;
    if (spread && (!number(plim_str_skip(s, cut + 1), &high) || high < median || high > 16e6)) {
        return false;
    }
    double sigma = log(high / median) / 2.3263;
    out->n = PLIM_TABLE_MAX;
    for (uint32_t i = 0; i < out->n; i++) {
        out->share[i] = shares[i];
        out->value[i] = fmax(1, median * exp(sigma * z[i]));
    }
    return true;
}

/* One key=value of a description. */
static bool take(struct plim_flow_source *s, struct plim_str key, struct plim_str value)
{
    const struct {
        const char *key;
        double *value;
    } numbers[] = {
        {"rate", &s->process.rate},       {"cv", &s->process.cv},
        {"burst", &s->process.burst},     {"burst_s", &s->process.burst_s},
        {"quiet_s", &s->process.quiet_s},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(numbers); i++) {
        if (plim_str_eq(key, plim_str_from(numbers[i].key))) {
            return number(value, numbers[i].value);
        }
    }
    if (plim_str_eq(key, PLIM_STR("like"))) {
        const struct plim_flow_source *p = preset(value);
        if (p) {
            s->prompt = p->prompt;
            s->output = p->output;
            s->side = p->side;
        }
        return p != NULL;
    }
    if (plim_str_eq(key, PLIM_STR("prompt"))) {
        return lognormal(value, &s->prompt);
    }
    return plim_str_eq(key, PLIM_STR("output")) && lognormal(value, &s->output);
}

static enum plim_status take_all(struct plim_flow_source *s, struct plim_str rest,
                                 struct plim_err *err)
{
    while (rest.n > 0) {
        size_t end = plim_str_find(rest, PLIM_STR(","));
        struct plim_str item = {rest.p, end == SIZE_MAX ? rest.n : end};
        size_t equals = plim_str_find(item, PLIM_STR("="));
        if (equals == SIZE_MAX ||
            !take(s, (struct plim_str){item.p, equals}, plim_str_skip(item, equals + 1))) {
            plim__fail(err, PLIM_E_USAGE, "\"%.*s\" is nothing that made traffic has",
                       PLIM_STR_ARG(item));
            plim__err_hint(err, "keys: rate, cv, burst, burst_s, quiet_s, like, prompt, output; "
                                "lengths as 1000~4000 (median~99th percentile)");
            return PLIM_E_USAGE;
        }
        rest = end == SIZE_MAX ? (struct plim_str){0} : plim_str_skip(rest, end + 1);
    }
    return PLIM_OK;
}

enum plim_status plim_flow_parse(struct plim_str text, struct plim_flow_source *out, bool *known,
                                 struct plim_err *err)
{
    static const char *const kinds[] = {
#define PLIM__X(name, text) text,
        PLIM_PROCESS_MAP(PLIM__X)
#undef PLIM__X
    };
    const struct plim_flow_source *p = preset(text);
    *known = p != NULL;
    if (p) {
        *out = *p;
        return PLIM_OK;
    }
    size_t colon = plim_str_find(text, PLIM_STR(":"));
    struct plim_str head = {text.p, colon == SIZE_MAX ? text.n : colon};
    for (size_t i = 0; i < PLIM_COUNT_OF(kinds); i++) {
        if (!plim_str_eq(head, plim_str_from(kinds[i]))) {
            continue;
        }
        struct plim_flow_source s = *preset(PLIM_STR("azure-conv"));
        s.process = (struct plim_process){(enum plim_process_kind)i, 1, 1, 2, 10, 10};
        *known = true;
        PLIM_TRY(take_all(
            &s, colon == SIZE_MAX ? (struct plim_str){0} : plim_str_skip(text, colon + 1), err));
        PLIM_TRY(plim_process_check(&s.process, err));
        *out = s;
        break;
    }
    return PLIM_OK;
}
