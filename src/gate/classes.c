/* SPDX-License-Identifier: Apache-2.0 */
/* Classes of requests: what each may take, and what was learned of it. */

#include "gate/gate_int.h"

#include "base/clock.h"
#include "base/err.h"

#include <jansson.h>
#include <stdio.h>

static void write_class(struct plim_jsonw *w, const struct plimsoll_gate_class *c)
{
    plim_jsonw_object(w);
    plim_jsonw_kv_text(w, "class", c->name);
    plim_jsonw_kv_real(w, "weight", c->weight);
    plim_jsonw_kv_real(w, "budget", c->budget);
    plim_jsonw_kv_u64(w, "max_requests", c->max_requests);
    plim_jsonw_kv_u64(w, "live", c->live);
    plim_jsonw_kv_u64(w, "expected_units", c->expected_units);
    plim_jsonw_kv_u64(w, "admitted", c->admitted);
    plim_jsonw_kv_u64(w, "refused", c->refused);
    plim_jsonw_kv_u64(w, "finished", c->finished);
    plim_jsonw_kv_real(w, "output_mean", c->output_mean);
    plim_jsonw_kv_u64(w, "output_p50", c->output_p50);
    plim_jsonw_kv_u64(w, "output_p90", c->output_p90);
    plim_jsonw_kv_u64(w, "output_p99", c->output_p99);
    plim_jsonw_end(w);
}

/* The class of everybody who is in no other has the name "". */
PLIM__GATE_HANDLER(classes)
{
    struct plim__gate *g = self;
    struct plimsoll_gate_class c;
    struct plim_jsonw w;
    (void)request;
    PLIM_TRY(plim__gate_check_open(g, err));
    plim_jsonw_init(&w, &answer->text, true);
    plim_jsonw_object(&w);
    plim_jsonw_kv_text(&w, "schema", "plimsoll.gate.classes/1");
    plim_jsonw_key(&w, "classes");
    plim_jsonw_array(&w);
    for (uint32_t i = 0; i < PLIMSOLL_GATE_CLASSES; i++) {
        if (plimsoll_gate_class_read(plim__gate_ledger(g), i, &c, plim_mono_ns()) ==
            PLIMSOLL_GATE_OK) {
            write_class(&w, &c);
        }
    }
    plim_jsonw_end(&w);
    plim_jsonw_end(&w);
    return PLIM_OK;
}

enum plim_status plim__gate_read_class(struct plim_str body, struct plimsoll_gate_class *out,
                                       struct plim_err *err)
{
    struct plimsoll_gate_class c = {.weight = 1};
    json_error_t e = {0};
    json_int_t requests = 0;
    const char *name = NULL;
    json_t *root = json_loadb(body.p, body.n, JSON_REJECT_DUPLICATES, &e);
    enum plim_status st = PLIM_OK;
    if (root == NULL ||
        json_unpack_ex(root, &e, JSON_STRICT, "{s:s, s?F, s?F, s?I}", "class", &name, "weight",
                       &c.weight, "budget", &c.budget, "max_requests", &requests) != 0) {
        st = plim__fail(err, PLIM_E_USAGE, "%s", e.text);
    } else if (strlen(name) >= sizeof(c.name) || !(c.weight >= 0.001 && c.weight <= 1e6) ||
               !(c.budget >= 0 && c.budget <= 1) || requests < 0 || requests > UINT32_MAX) {
        st = plim__fail(err, PLIM_E_USAGE, "a name, weight, budget or number is out of range");
        plim__err_hint(err, "weight from 0.001 to a million; budget a share of the pool, 0: no "
                            "limit; names of at most 47 bytes");
    } else {
        (void)snprintf(c.name, sizeof(c.name), "%s", name);
        c.max_requests = (uint32_t)requests;
    }
    json_decref(root);
    if (st == PLIM_OK) {
        *out = c;
    }
    return st;
}

PLIM__GATE_HANDLER(class_set)
{
    struct plim__gate *g = self;
    struct plimsoll_gate_class c;
    PLIM_TRY(plim__gate_read_class(request->body, &c, err));
    PLIM_TRY(plim__gate_check_open(g, err));
    struct plimsoll_gate *ledger = plim__gate_ledger(g);
    uint32_t id = c.name[0] ? plimsoll_gate_class(ledger, c.name, plim_mono_ns()) : 0;
    if (c.name[0] != '\0' && id == 0) {
        return plim__fail(err, PLIM_E_RANGE, "the table of %u classes is full",
                          PLIMSOLL_GATE_CLASSES);
    }
    int code = plimsoll_gate_class_set(ledger, id, &c, plim_mono_ns());
    if (code != PLIMSOLL_GATE_OK) {
        return plim__fail(err, PLIM_E_OS, "%s", plimsoll_gate_code_text(code));
    }
    answer->code = 204;
    return PLIM_OK;
}
