/* SPDX-License-Identifier: Apache-2.0 */
/* Alerts: the list, and what can be done about them. Changes are for those who have the token. */

#include "watch/serve_int.h"

#include "base/clock.h"
#include "base/jsonw.h"
#include "watch/alert.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SILENCE_MOST (UINT64_C(366) * 86400) /* seconds */

static enum plim_status alerts_of(struct plim__serve *s, struct plim_alerts **out,
                                  struct plim_err *err)
{
    *out = s->watch->alerts;
    return *out ? PLIM_OK : plim__fail(err, PLIM_E_NOTFOUND, "this monitor has no alerts");
}

PLIM__HANDLER(alerts)
{
    struct plim_alerts *alerts;
    struct plim_jsonw w;
    (void)request;
    PLIM_TRY(alerts_of(self, &alerts, err));
    plim_jsonw_init(&w, &answer->text, true);
    plim_alerts_json(alerts, &w);
    return PLIM_OK;
}

/* "0123456789abcdef" of an address. */
static enum plim_status read_fingerprint(struct plim_str text, uint64_t *out, struct plim_err *err)
{
    char digits[17] = "";
    if (text.n != 16) {
        return plim__fail(err, PLIM_E_USAGE, "a fingerprint has 16 hexadecimal digits");
    }
    memcpy(digits, text.p, 16);
    if (strspn(digits, "0123456789abcdef") != 16) {
        return plim__fail(err, PLIM_E_USAGE, "a fingerprint has 16 hexadecimal digits");
    }
    *out = strtoull(digits, NULL, 16);
    return PLIM_OK;
}

PLIM__HANDLER(acknowledge)
{
    struct plim_alerts *alerts;
    uint64_t fingerprint;
    PLIM_TRY(alerts_of(self, &alerts, err));
    PLIM_TRY(read_fingerprint(request->param[0], &fingerprint, err));
    PLIM_TRY(plim_alerts_acknowledge(alerts, fingerprint, err));
    answer->code = 204;
    return PLIM_OK;
}

/* Copy a text that must fit. */
static bool fits(char *to, size_t n, const char *from)
{
    int written = snprintf(to, n, "%s", from);
    return written >= 0 && (size_t)written < n;
}

static enum plim_status read_silence(struct plim_str body, struct plim_silence *out,
                                     struct plim_err *err)
{
    const char *rule = "", *device = "", *process = "", *author = "", *comment = "";
    json_int_t seconds = 0;
    json_error_t e = {0};
    json_t *root = json_loadb(body.p, body.n, JSON_REJECT_DUPLICATES, &e);
    bool good =
        root && json_unpack_ex(root, &e, JSON_STRICT, "{s:I, s?s, s?s, s?s, s?s, s?s}", "seconds",
                               &seconds, "rule", &rule, "device", &device, "process", &process,
                               "author", &author, "comment", &comment) == 0;
    enum plim_status st = PLIM_OK;
    if (!good) {
        st = plim__fail(err, PLIM_E_USAGE, "no silence: %s", e.text);
    } else if (seconds < 1 || (uint64_t)seconds > SILENCE_MOST) {
        st = plim__fail(err, PLIM_E_RANGE, "a silence lasts 1 second to 366 days");
    } else if (!fits(out->rule, sizeof(out->rule), rule) ||
               !fits(out->device, sizeof(out->device), device) ||
               !fits(out->process, sizeof(out->process), process) ||
               !fits(out->author, sizeof(out->author), author) ||
               !fits(out->comment, sizeof(out->comment), comment)) {
        st = plim__fail(err, PLIM_E_RANGE, "a text of the silence is too long");
    } else {
        out->until_ns = plim_wall_ns() + (uint64_t)seconds * PLIM_SECOND_NS;
    }
    json_decref(root);
    return st;
}

PLIM__HANDLER(silence)
{
    struct plim_alerts *alerts;
    struct plim_silence silence = {0};
    struct plim_jsonw w;
    uint64_t id;
    PLIM_TRY(alerts_of(self, &alerts, err));
    PLIM_TRY(read_silence(request->body, &silence, err));
    PLIM_TRY(plim_alerts_silence(alerts, &silence, &id, err));
    plim_jsonw_init(&w, &answer->text, true);
    plim_jsonw_object(&w);
    plim_jsonw_kv_u64(&w, "id", id);
    plim_jsonw_end(&w);
    return PLIM_OK;
}

PLIM__HANDLER(unsilence)
{
    struct plim_alerts *alerts;
    uint64_t id;
    PLIM_TRY(alerts_of(self, &alerts, err));
    if (!plim_http_number(request->param[0], &id)) {
        return plim__fail(err, PLIM_E_USAGE, "a silence's id is a whole number");
    }
    PLIM_TRY(plim_alerts_unsilence(alerts, id, err));
    answer->code = 204;
    return PLIM_OK;
}
