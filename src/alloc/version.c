/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch release -> behaviour switches. One table of facts; see version.h for the sources. */

#include "alloc/version.h"

static bool number_take(struct plim_str *s, unsigned *out)
{
    size_t i = 0;
    unsigned n = 0;
    while (i < s->n && s->p[i] >= '0' && s->p[i] <= '9' && i < 4) {
        n = n * 10 + (unsigned)(s->p[i++] - '0');
    }
    if (i == 0) {
        return false;
    }
    *s = plim_str_skip(*s, i);
    *out = n;
    return true;
}

enum plim_status plim_torch_version_parse(struct plim_str text, struct plim_torch_version *out,
                                          struct plim_err *err)
{
    struct plim_str rest = plim_str_trim(text);
    unsigned major = 0;
    unsigned minor = 0;
    if (plim_str_starts(rest, PLIM_STR("v"))) {
        rest = plim_str_skip(rest, 1);
    }
    bool good = number_take(&rest, &major) && plim_str_starts(rest, PLIM_STR("."));
    rest = plim_str_skip(rest, 1);
    good = good && number_take(&rest, &minor);
    good = good && (rest.n == 0 || rest.p[0] == '.' || rest.p[0] == '+' || rest.p[0] == 'a');
    if (!good) {
        return plim__fail(err, PLIM_E_USAGE, "'%.*s' is not a PyTorch version", PLIM_STR_ARG(text));
    }
    struct plim_torch_version v = {(uint16_t)major, (uint16_t)minor};
    if (!plim_torch_at_least(v, PLIM_TORCH_OLDEST.major, PLIM_TORCH_OLDEST.minor)) {
        plim__fail(err, PLIM_E_UNSUPPORTED, "no allocator model for PyTorch %u.%u", major, minor);
        plim__err_hint(err, "models exist for %u.%u to %u.%u", PLIM_TORCH_OLDEST.major,
                       PLIM_TORCH_OLDEST.minor, PLIM_TORCH_LATEST.major, PLIM_TORCH_LATEST.minor);
        return PLIM_E_UNSUPPORTED;
    }
    *out = v;
    return PLIM_OK;
}

struct plim_torch_rules plim_torch_rules_of(struct plim_torch_version v)
{
    struct plim_torch_rules rules = {
        .order_by_counter = plim_torch_at_least(v, 2, 13),
        .cap_nearest = plim_torch_at_least(v, 2, 13),
        .full_fraction_no_cap = plim_torch_at_least(v, 2, 10),
        .overflow_pools = plim_torch_at_least(v, 2, 8),
        .no_split_pools = plim_torch_at_least(v, 2, 11),
        .expandable_by_request = plim_torch_at_least(v, 2, 8),
        .reject_option = plim_torch_at_least(v, 2, 12),
        .capture_is_real = plim_torch_at_least(v, 2, 13),
        .failure_asks_free = plim_torch_at_least(v, 2, 14),
        .advice_needs_plain = plim_torch_at_least(v, 2, 14),
        .common_config = plim_torch_at_least(v, 2, 9),
        .fill_behind_last = plim_torch_at_least(v, 2, 8),
        .own_rounding_slack = plim_torch_at_least(v, 2, 6),
        .oom_text = PLIM_TORCH_OOM_2_1,
    };
    if (plim_torch_at_least(v, 2, 10)) {
        rules.oom_text = PLIM_TORCH_OOM_2_10;
    } else if (plim_torch_at_least(v, 2, 6)) {
        rules.oom_text = PLIM_TORCH_OOM_2_6;
    } else if (plim_torch_at_least(v, 2, 2)) {
        rules.oom_text = PLIM_TORCH_OOM_2_2;
    }
    return rules;
}
