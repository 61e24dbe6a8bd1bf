/* SPDX-License-Identifier: Apache-2.0 */
/* Writing findings: strings into the arena, entries into the set, failures sticky. */

#include "diagnose/message_internal.h"

#include <stdarg.h>
#include <stdio.h>

#define SAY_MOST 600 /* no finding needs a longer sentence */

const char *plim__say(struct plim__case *c, const char *fmt, ...)
{
    char text[SAY_MOST];
    struct plim_str kept;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (c->st == PLIM_OK) {
        c->st = plim_arena_str(c->arena, plim_str_from(text), &kept, c->err);
    }
    return c->st == PLIM_OK ? kept.p : "";
}

const char *plim__size(struct plim__case *c, uint64_t bytes)
{
    char text[PLIM_BYTES_TEXT];
    return plim__say(c, "%s", plim_bytes_format(text, bytes));
}

/* Keep the status of a push. */
static void note(struct plim__case *c, enum plim_status st)
{
    c->st = c->st == PLIM_OK ? st : c->st;
}

void plim__verdict(struct plim__case *c, enum plim_class cls, enum plim_subclass sub,
                   double confidence, const char *summary)
{
    c->set->verdict = (struct plim_verdict){cls, sub, confidence, summary};
}

void plim__evidence(struct plim__case *c, enum plim_how how, const char *text)
{
    note(c, plim_vec_push(&c->set->evidence, c->err, (struct plim_evidence){text, how, {0}}));
}

void plim__evidence_amount(struct plim__case *c, struct plim_amount amount, const char *text)
{
    note(c, plim_vec_push(&c->set->evidence, c->err,
                          (struct plim_evidence){text, amount.how, amount}));
}

void plim__counterfactual(struct plim__case *c, const char *name, uint64_t gains, bool fits,
                          const char *text)
{
    struct plim_counterfactual cf = {name, text, plim_amount(gains, PLIM_HOW_COMPUTED),
                                     fits ? PLIM_FITS_YES : PLIM_FITS_NO};
    note(c, plim_vec_push(&c->set->counterfactuals, c->err, cf));
}

void plim__advice(struct plim__case *c, const char *action, const char *why)
{
    plim__advice_full(c, &(struct plim_advice){.action = action, .why = why});
}

void plim__advice_full(struct plim__case *c, const struct plim_advice *advice)
{
    note(c, plim_vec_push(&c->set->advice, c->err, *advice));
}

void plim__unknown(struct plim__case *c, const char *text)
{
    note(c, plim_vec_push(&c->set->unknowns, c->err, text));
}

struct plim_amount plim__field(const struct plim__case *c, enum plim_oom_field field)
{
    const struct plim_oom_value *value = &c->facts->field[field];
    if (!value->set || value->n >= PLIM__NO_SIZE) {
        return (struct plim_amount){0};
    }
    return plim_amount(value->n, PLIM_HOW_MEASURED);
}

uint64_t plim__slop(const struct plim__case *c, enum plim_oom_field field)
{
    return c->facts->field[field].set ? c->facts->field[field].slop : 0;
}

bool plim__saw(const struct plim__case *c, enum plim_oom_meaning meaning)
{
    return c->facts->seen[meaning] != 0;
}
