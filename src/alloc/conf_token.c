/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of a settings string and the values that they stand for. */

#include "alloc/conf_int.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

static bool is_separator(char c)
{
    return c == ',' || c == ':' || c == '[' || c == ']';
}

enum plim_status plim__conf_tokens_split(struct plim__conf_tokens *tk, struct plim_str text,
                                         struct plim_err *err)
{
    char *out = malloc(text.n + 1);
    if (!out) {
        return plim__fail(err, PLIM_E_NOMEM, "no memory for a settings string of %zu bytes",
                          text.n);
    }
    tk->chars = out;
    tk->n = 0;
    bool open = false; /* the last token is a word that may go on */
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (isspace((unsigned char)c)) {
            continue;
        }
        if (!open || is_separator(c)) {
            if (tk->n == PLIM_CONF_TOKENS) {
                return plim__fail(err, PLIM_E_BUDGET, "a settings string of more than %d tokens",
                                  PLIM_CONF_TOKENS);
            }
            tk->items[tk->n++] = (struct plim__conf_token){{out, 0}, i};
        }
        *out++ = c;
        tk->items[tk->n - 1].text.n++;
        open = !is_separator(c);
    }
    return PLIM_OK;
}

bool plim__conf_token_is(const struct plim__conf_tokens *tk, size_t i, const char *z)
{
    return i < tk->n && plim_str_eq(tk->items[i].text, plim_str_from(z));
}

enum plim_status plim__conf_token_missing(struct plim_err *err)
{
    plim__fail(err, PLIM_E_USAGE, "Index out of bounds in ConfigTokenizer");
    plim__err_hint(err, "a value is missing at the end of the settings string");
    return PLIM_E_USAGE;
}

static enum plim_status token_at(const struct plim__conf_tokens *tk, size_t i, struct plim_str *out,
                                 struct plim_err *err)
{
    if (i >= tk->n) {
        return plim__conf_token_missing(err);
    }
    *out = tk->items[i].text;
    return PLIM_OK;
}

/* Steps onto the separator behind *i. */
enum plim_status plim__conf_token_separator(const struct plim__conf_tokens *tk, size_t *i,
                                            const char *z, struct plim_err *err)
{
    ++*i;
    if (*i >= tk->n) {
        return plim__conf_token_missing(err);
    }
    if (tk->strict && !plim__conf_token_is(tk, *i, z)) {
        return plim__fail(err, PLIM_E_USAGE, "Error parsing CachingAllocator settings, expected %s",
                          z);
    }
    return PLIM_OK;
}

/* Steps onto the value behind "key:" and gives it. */
enum plim_status plim__conf_value_text(const struct plim__conf_tokens *tk, size_t *i,
                                       struct plim_str *out, struct plim_err *err)
{
    PLIM_TRY(plim__conf_token_separator(tk, i, ":", err));
    ++*i;
    return token_at(tk, *i, out, err);
}

/* std::stoull: sign allowed, stops at the first other character, negative values wrap. */
enum plim_status plim__conf_number_of(struct plim_str s, uint64_t *out, struct plim_err *err)
{
    char z[64];
    size_t n = s.n < sizeof z - 1 ? s.n : sizeof z - 1;
    memcpy(z, s.p, n);
    z[n] = 0;
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(z, &end, 10);
    if (end == z || errno == ERANGE) {
        plim__fail(err, PLIM_E_USAGE, "stoull");
        plim__err_hint(err, "'%.*s' is not a whole number", PLIM_STR_ARG(s));
        return PLIM_E_USAGE;
    }
    *out = v;
    return PLIM_OK;
}

enum plim_status plim__conf_value_number(const struct plim__conf_tokens *tk, size_t *i,
                                         uint64_t *out, struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(plim__conf_value_text(tk, i, &s, err));
    return plim__conf_number_of(s, out, err);
}

enum plim_status plim__conf_value_real(const struct plim__conf_tokens *tk, size_t *i, double *out,
                                       struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(plim__conf_value_text(tk, i, &s, err));
    char z[64];
    size_t n = s.n < sizeof z - 1 ? s.n : sizeof z - 1;
    memcpy(z, s.p, n);
    z[n] = 0;
    char *end = NULL;
    errno = 0;
    double v = strtod(z, &end);
    if (end == z || errno == ERANGE) {
        plim__fail(err, PLIM_E_USAGE, "stod");
        plim__err_hint(err, "'%.*s' is not a number", PLIM_STR_ARG(s));
        return PLIM_E_USAGE;
    }
    *out = v;
    return PLIM_OK;
}

enum plim_status plim__conf_value_bool(const struct plim__conf_tokens *tk, size_t *i, bool *out,
                                       struct plim_err *err)
{
    struct plim_str s;
    PLIM_TRY(plim__conf_value_text(tk, i, &s, err));
    if (plim_str_eq(s, PLIM_STR("True"))) {
        *out = true;
    } else if (plim_str_eq(s, PLIM_STR("False"))) {
        *out = false;
    } else if (tk->strict) {
        return plim__fail(err, PLIM_E_USAGE, "Expected a single True/False argument for %.*s",
                          PLIM_STR_ARG(tk->items[*i - 2].text));
    } else {
        return plim__fail(
            err, PLIM_E_USAGE,
            "Expected 'True' or 'False' at index %zu in ConfigTokenizer but got '%.*s'", *i,
            PLIM_STR_ARG(s));
    }
    return PLIM_OK;
}
