/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: what was measured at one moment, on its way to a store. */

#include "base/intern.h"
#include "store/store.h"

#include <math.h>

void plim_batch_fini(struct plim_batch *batch)
{
    plim_vec_fini(&batch->subjects);
    plim_vec_fini(&batch->values);
    plim_vec_fini(&batch->figures);
    plim_vec_fini(&batch->events);
    plim_buf_fini(&batch->text);
    *batch = (struct plim_batch){0};
}

void plim_batch_reset(struct plim_batch *batch, uint64_t time_ns, uint64_t mono_ns)
{
    batch->time_ns = time_ns;
    batch->mono_ns = mono_ns;
    batch->subjects.n = batch->values.n = batch->figures.n = batch->events.n = 0;
    plim_buf_reset(&batch->text);
}

/* Copy a text and its NUL; its offset. */
static uint32_t put_text(struct plim_batch *batch, const char *text)
{
    size_t at = batch->text.n;
    plim_buf_add(&batch->text, (struct plim_str){text, strlen(text) + 1});
    return (uint32_t)at;
}

enum plim_status plim_batch_subject(struct plim_batch *batch, const char *kind, const char *key,
                                    const char *labels, struct plim_err *err)
{
    struct plim_batch_subject subject = {
        .kind = put_text(batch, kind),
        .key = put_text(batch, key),
        .labels = put_text(batch, labels),
    };
    PLIM_TRY(plim_buf_status(&batch->text, err));
    subject.hash = plim_hash_bytes(batch->text.p + subject.kind, subject.labels - subject.kind);
    return plim_vec_push(&batch->subjects, err, subject);
}

enum plim_status plim_batch_point(struct plim_batch *batch, uint16_t figure, double value,
                                  struct plim_err *err)
{
    if (!isfinite(value) || batch->subjects.n == 0) {
        return PLIM_OK;
    }
    PLIM_TRY(plim_vec_reserve(&batch->values, 1, err));
    PLIM_TRY(plim_vec_push(&batch->figures, err, figure));
    batch->values.items[batch->values.n++] = value;
    batch->subjects.items[batch->subjects.n - 1].n_points++;
    return PLIM_OK;
}

enum plim_status plim_batch_event(struct plim_batch *batch, uint64_t time_ns, const char *kind,
                                  bool about, const char *json, struct plim_err *err)
{
    struct plim_batch_event event = {
        .time_ns = time_ns,
        .kind = put_text(batch, kind),
        .json = put_text(batch, json),
        .subject = about && batch->subjects.n > 0 ? (uint32_t)batch->subjects.n - 1 : UINT32_MAX,
    };
    PLIM_TRY(plim_buf_status(&batch->text, err));
    return plim_vec_push(&batch->events, err, event);
}

uint64_t plim_batch_bytes(const struct plim_batch *batch)
{
    return batch->subjects.cap * sizeof(*batch->subjects.items) +
           batch->values.cap * sizeof(*batch->values.items) +
           batch->figures.cap * sizeof(*batch->figures.items) +
           batch->events.cap * sizeof(*batch->events.items) + batch->text.cap;
}
