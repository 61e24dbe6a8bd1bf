/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_STORE_TAIL_H
#define PLIM_STORE_TAIL_H

/*
 * Tail: the newest points, one row of the database for each batch, until a span is full and they are packed.
 *
 *   slot   a series of the tail, numbered in the order of appearance, with the value it had last
 *
 * A row holds what changed since the row before it: figures of memory stand still most of the time. Rows are therefore
 * read from the first one on. Bytes of a row are hostile. Threads: a tail belongs to one thread.
 */

#include "base/map.h"
#include "base/varint.h"
#include "base/vec.h"

#define PLIM_STORE_TIME_MAX INT64_C(100000000000000) /* ms: the year 5138. A file may be hostile */
#define PLIM_TAIL_SLOTS     65536u /* most series at one time; further ones are left out */

struct plim__slot {
    double value;
    uint32_t subject; /* id in the file */
    uint16_t figure;  /* id in the file */
    bool present;
    uint32_t row; /* of the newest row that had it */
};

struct plim__tail {
    PLIM_VEC(struct plim__slot) slots;
    struct plim_map index; /* subject and figure -> slot */
    uint32_t rows;         /* so far */
    int64_t first, last;   /* times of the first and newest row, ledger milliseconds; if rows > 0 */
    struct plim_buf body;  /* of the row in the making */
    uint64_t changes, next;
};

static inline uint64_t plim__slot_key(uint32_t subject, uint16_t figure)
{
    return (uint64_t)subject << 16 | figure;
}

void plim__tail_fini(struct plim__tail *tail);
void plim__tail_reset(struct plim__tail *tail); /* no rows, storage kept */

/** plim__tail_begin()/value()/end() - write one row to `out`. The tail is then ahead of the file: when the row does
 * not get there, it must be reset and read again. Errors: PLIM_E_NOMEM. */
void plim__tail_begin(struct plim__tail *tail);
PLIM_MUST_USE enum plim_status plim__tail_value(struct plim__tail *tail, uint32_t subject,
                                                uint16_t figure, double value,
                                                struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__tail_end(struct plim__tail *tail, int64_t time,
                                              struct plim_buf *out, struct plim_err *err);

/** plim__tail_read() - take the next row in. Errors: PLIM_E_DATA (the tail is then as far as it was, or must be
 * reset), PLIM_E_NOMEM. */
PLIM_MUST_USE enum plim_status plim__tail_read(struct plim__tail *tail, struct plim_str row,
                                               struct plim_err *err);

#endif
