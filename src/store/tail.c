/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Rows of the tail:
 *
 *   version   1 byte
 *   time      varint: ledger milliseconds
 *   changes   varint, then for each: which slot, as the signed distance from the one expected next; for a slot that is
 *             new its subject and figure; the value: whole * 2 from the value before, or 1 and eight bytes
 *   absences  varint, then for each slot that had a value in the row before and has none now: distance
 *   check     4 bytes: lowest of the XXH3 of all before
 */

#include "store/tail.h"

#include "base/intern.h"

#include <math.h>

#define ROW_VERSION 1
#define CHECK_BYTES 4u
#define WHOLE_MAX   4503599627370496.0 /* 2^52: a difference of two fits a varint beside its flag */

void plim__tail_fini(struct plim__tail *tail)
{
    plim_vec_fini(&tail->slots);
    plim_map_fini(&tail->index);
    plim_buf_fini(&tail->body);
    *tail = (struct plim__tail){0};
}

void plim__tail_reset(struct plim__tail *tail)
{
    tail->slots.n = 0;
    plim_map_fini(&tail->index);
    tail->rows = 0;
    tail->first = tail->last = 0;
}

static enum plim_status add_slot(struct plim__tail *tail, uint32_t subject, uint16_t figure,
                                 struct plim_err *err)
{
    PLIM_TRY(plim_vec_reserve(&tail->slots, 1, err));
    PLIM_TRY(plim_map_put(&tail->index, plim__slot_key(subject, figure), tail->slots.n, err));
    tail->slots.items[tail->slots.n++] = (struct plim__slot){.subject = subject, .figure = figure};
    return PLIM_OK;
}

/* ---- writing ---- */

void plim__tail_begin(struct plim__tail *tail)
{
    plim_buf_reset(&tail->body);
    tail->changes = tail->next = 0;
    tail->rows++;
}

static bool whole(double v)
{
    return fabs(v) < WHOLE_MAX && v == trunc(v) && !(v == 0 && signbit(v));
}

static void put_value(struct plim_buf *out, double value, double before)
{
    if (whole(value) && whole(before)) {
        int64_t change = (int64_t)value - (int64_t)before;
        plim__varint_put(out, plim__zigzag(change) << 1);
    } else {
        plim__varint_put(out, 1);
        plim_buf_add(out, (struct plim_str){(const char *)&value, sizeof(value)});
    }
}

enum plim_status plim__tail_value(struct plim__tail *tail, uint32_t subject, uint16_t figure,
                                  double value, struct plim_err *err)
{
    uint64_t *known = plim_map_get(&tail->index, plim__slot_key(subject, figure));
    uint64_t at = known != NULL ? *known : tail->slots.n;
    if (known == NULL) {
        if (at >= PLIM_TAIL_SLOTS) {
            return PLIM_OK;
        }
        PLIM_TRY(add_slot(tail, subject, figure, err));
    }
    struct plim__slot *slot = &tail->slots.items[at];
    if (slot->row == tail->rows) {
        return PLIM_OK; /* said twice in one batch: the first counts */
    }
    slot->row = tail->rows;
    if (slot->present && slot->value == value) {
        return PLIM_OK;
    }
    plim__varint_put(&tail->body, plim__zigzag((int64_t)(at - tail->next)));
    if (known == NULL) {
        plim__varint_put(&tail->body, subject);
        plim__varint_put(&tail->body, figure);
    }
    put_value(&tail->body, value, slot->value);
    tail->next = at + 1;
    tail->changes++;
    slot->present = true;
    slot->value = value;
    return PLIM_OK;
}

static void put_absences(struct plim__tail *tail, struct plim_buf *out)
{
    uint64_t n = 0, next = 0;
    plim_buf_reset(&tail->body);
    for (size_t i = 0; i < tail->slots.n; i++) {
        struct plim__slot *slot = &tail->slots.items[i];
        if (slot->present && slot->row != tail->rows) {
            slot->present = false;
            plim__varint_put(&tail->body, i - next);
            next = i + 1;
            n++;
        }
    }
    plim__varint_put(out, n);
    plim_buf_add(out, plim_buf_str(&tail->body));
}

enum plim_status plim__tail_end(struct plim__tail *tail, int64_t time, struct plim_buf *out,
                                struct plim_err *err)
{
    size_t start = out->n;
    plim_buf_char(out, ROW_VERSION);
    plim__varint_put(out, (uint64_t)time);
    plim__varint_put(out, tail->changes);
    plim_buf_add(out, plim_buf_str(&tail->body));
    out->failed = out->failed || tail->body.failed;
    put_absences(tail, out);
    out->failed = out->failed || tail->body.failed;
    PLIM_TRY(plim_buf_status(out, err));
    uint64_t check = plim_hash_bytes(out->p + start, out->n - start);
    plim_buf_add(out, (struct plim_str){(const char *)&check, CHECK_BYTES});
    tail->first = tail->rows == 1 ? time : tail->first;
    tail->last = time;
    return plim_buf_status(out, err);
}

/* ---- reading ---- */

static enum plim_status broken(struct plim_err *err)
{
    return plim__fail(err, PLIM_E_DATA, "a row of the newest history is damaged");
}

static bool get_value(struct plim_cursor *c, struct plim__slot *slot)
{
    uint64_t v = plim__varint_get(c);
    if ((v & 1) == 0) {
        if (!whole(slot->value)) {
            return false;
        }
        slot->value = (double)((int64_t)slot->value + plim__unzigzag(v >> 1));
        return !c->bad;
    }
    if (v != 1 || (size_t)(c->end - c->p) < sizeof(slot->value)) {
        return false;
    }
    memcpy(&slot->value, c->p, sizeof(slot->value));
    c->p += sizeof(slot->value);
    return isfinite(slot->value);
}

static enum plim_status read_change(struct plim__tail *tail, struct plim_cursor *c, uint64_t *next,
                                    struct plim_err *err)
{
    uint64_t at = *next + (uint64_t)plim__unzigzag(plim__varint_get(c));
    if (at > tail->slots.n || at >= PLIM_TAIL_SLOTS) {
        return broken(err);
    }
    if (at == tail->slots.n) {
        uint64_t subject = plim__varint_get(c);
        uint64_t figure = plim__varint_get(c);
        if (c->bad || subject > UINT32_MAX || figure > UINT16_MAX) {
            return broken(err);
        }
        PLIM_TRY(add_slot(tail, (uint32_t)subject, (uint16_t)figure, err));
    }
    struct plim__slot *slot = &tail->slots.items[at];
    if (!get_value(c, slot)) {
        return broken(err);
    }
    slot->present = true;
    *next = at + 1;
    return PLIM_OK;
}

static bool read_absences(struct plim__tail *tail, struct plim_cursor *c)
{
    uint64_t n = plim__varint_get(c), next = 0;
    for (uint64_t i = 0; i < n && !c->bad; i++) {
        uint64_t at = next + plim__varint_get(c);
        if (at >= tail->slots.n) {
            return false;
        }
        tail->slots.items[at].present = false;
        next = at + 1;
    }
    return !c->bad && c->p == c->end;
}

enum plim_status plim__tail_read(struct plim__tail *tail, struct plim_str row, struct plim_err *err)
{
    if (row.n < CHECK_BYTES + 1) {
        return broken(err);
    }
    row.n -= CHECK_BYTES;
    uint64_t check = plim_hash_bytes(row.p, row.n);
    if (memcmp(&check, row.p + row.n, CHECK_BYTES) != 0 || row.p[0] != ROW_VERSION) {
        return broken(err);
    }
    struct plim_cursor c = plim__cursor(plim_str_skip(row, 1));
    uint64_t time = plim__varint_get(&c);
    uint64_t n = plim__varint_get(&c), next = 0;
    if (c.bad || time > (uint64_t)PLIM_STORE_TIME_MAX ||
        (tail->rows > 0 && (int64_t)time <= tail->last)) {
        return broken(err);
    }
    for (uint64_t i = 0; i < n; i++) {
        PLIM_TRY(read_change(tail, &c, &next, err));
    }
    if (!read_absences(tail, &c)) {
        return broken(err);
    }
    tail->rows++;
    tail->first = tail->rows == 1 ? (int64_t)time : tail->first;
    tail->last = (int64_t)time;
    plim_vec_foreach (slot, &tail->slots) {
        slot->row = slot->present ? tail->rows : slot->row;
    }
    return PLIM_OK;
}
