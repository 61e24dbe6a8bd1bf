/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See doors.h. A limit is searched on a ladder of half octaves first, then twice between the neighbours of
 * the best one. Goodput over the limit has one hill in all but rare cases, and where it has two the ladder
 * sees both.
 */

#include "serving/doors.h"

#include "base/num.h"

#include <math.h>

struct plan_row {
    enum plim_door_kind kind;
    uint32_t policy;
    bool oracle;
    double least, most; /* of the limit; 0: none */
};

static const struct plan_row plan[PLIM_DOOR_ROWS] = {
    {.kind = PLIM_DOOR_NONE},
    {.kind = PLIM_DOOR_LINE, .least = 1, .most = 4096},
    {.kind = PLIM_DOOR_REQUESTS, .least = 1, .most = 4096},
    {.kind = PLIM_DOOR_TOKENS, .least = 256, .most = 1 << 21},
    {.kind = PLIM_DOOR_GATE, .policy = PLIMSOLL_GATE_POLICY_CONSERVATIVE},
    {.kind = PLIM_DOOR_GATE, .policy = PLIMSOLL_GATE_POLICY_OVERCOMMIT},
    {.kind = PLIM_DOOR_GATE, .policy = PLIMSOLL_GATE_POLICY_EXPECTED},
    {.kind = PLIM_DOOR_GATE, .policy = PLIMSOLL_GATE_POLICY_EXPECTED, .oracle = true},
};

const char *plim_door_name(const struct plim_door_options *door)
{
    static const char *const gates[] = {
#define PLIMSOLL__X(name, number, word, meaning) [number] = "gate, " word,
        PLIMSOLL_GATE_POLICY_MAP(PLIMSOLL__X)
#undef PLIMSOLL__X
    };
    if (door->kind != PLIM_DOOR_GATE || door->policy >= PLIM_COUNT_OF(gates)) {
        return plim_door_text(door->kind);
    }
    return door->oracle ? "gate, oracle" : gates[door->policy];
}

double plim_door_goodput(const struct plim_soak_result *r)
{
    return r->door.span_s > 0 ? (double)r->door.good / r->door.span_s : 0;
}

static enum plim_status try(const struct plim_soak_setup *setup, struct plim_door_row *row,
                            double limit, struct plim_err *err)
{
    struct plim_soak_setup s = *setup;
    struct plim_door_row next = *row;
    next.door.limit = (uint64_t)(limit + 0.5);
    s.door = &next.door;
    PLIM_TRY(plim_soak_run(&s, &next.result, err));
    next.tried++;
    bool better = row->tried == 0 || next.result.door.good > row->result.door.good;
    row->tried = next.tried;
    if (better) {
        *row = next;
    }
    return PLIM_OK;
}

static enum plim_status search(const struct plim_soak_setup *setup, struct plim_door_row *row,
                               const struct plan_row *p, struct plim_err *err)
{
    row->searched = true;
    int rungs = (int)(2 * log2(p->most / p->least));
    for (int i = 0; i <= rungs; i++) {
        PLIM_TRY(try(setup, row, p->least * pow(2, i / 2.0), err));
    }
    for (int octaves = 4; octaves <= 8; octaves *= 2) { /* a quarter of one, then an eighth */
        double best = (double)row->door.limit;
        double step = pow(2, 1.0 / octaves);
        PLIM_TRY(try(setup, row, best / step, err));
        PLIM_TRY(try(setup, row, best * step, err));
    }
    return PLIM_OK;
}

enum plim_status plim_doors_compare(const struct plim_soak_setup *setup,
                                    const struct plim_door_terms *terms, struct plim_door_row *rows,
                                    struct plim_err *err)
{
    if (setup->server->workload != PLIM_WORKLOAD_PAGED) {
        return plim__fail(err, PLIM_E_USAGE, "front doors are simulated before a paged engine");
    }
    for (size_t i = 0; i < PLIM_DOOR_ROWS; i++) {
        const struct plan_row *p = &plan[i];
        rows[i] = (struct plim_door_row){
            .door = {.kind = p->kind, .policy = p->policy, .oracle = p->oracle, .terms = *terms}};
        PLIM_TRY(p->most > 0 ? search(setup, &rows[i], p, err) : try(setup, &rows[i], 0, err));
    }
    return PLIM_OK;
}
