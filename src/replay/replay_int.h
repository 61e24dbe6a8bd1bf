/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPLAY_REPLAY_INT_H
#define PLIM_REPLAY_REPLAY_INT_H

/* One model with its device and its tables, ready for requests: what replay.c and selfcheck.c share. */

#include "alloc/torch.h"
#include "replay/selfcheck.h"

struct plim__stage {
    const struct plim_requests *q;
    struct plim_devmodel device;
    bool device_ready;
    struct plim_torch *torch;
    uint16_t *streams;   /* owned: snapshot stream -> model stream */
    uint16_t *pools;     /* owned: snapshot pool -> model pool */
    bool *pool_retained; /* owned: by snapshot pool */
    uint64_t *handles;   /* owned, [q->slots]: slot -> block of the model */
    size_t n_streams;    /* of the first array */
    size_t n_pools;      /* of the next two */
};

/* Bytes of an ALLOC when those that are freed again grow by a factor (0 or 1: none). */
static inline uint64_t plim__request_scaled(const struct plim_request *r, double scale)
{
    if (scale <= 0 || scale == 1 || plim_request_kept(r)) {
        return r->size;
    }
    double size = (double)r->size * scale;
    return size < 1 ? 1 : size >= 0x1p60 ? UINT64_C(1) << 60 : (uint64_t)size;
}

/* Make device and model, register streams and pools. Undo with plim__stage_fini, also after an error. */
PLIM_MUST_USE enum plim_status
plim__stage_init(struct plim__stage *s, const struct plim_requests *q, const struct plim_conf *conf,
                 const struct plim_devmodel_config *device, plim_torch_event_fn *on_event,
                 void *ctx, struct plim_err *err);
void plim__stage_fini(struct plim__stage *s);

/* What the recording began with, as it was. */
PLIM_MUST_USE enum plim_status plim__stage_restore(struct plim__stage *s, struct plim_err *err);

/* Run one request of `size` bytes (of an ALLOC; the others ignore it). *failed: out of memory. */
PLIM_MUST_USE enum plim_status plim__stage_run(struct plim__stage *s, const struct plim_request *r,
                                               uint64_t size, bool *failed, struct plim_err *err);

/* plim_replay() with `moving`, on a device of `total` bytes. */
PLIM_MUST_USE enum plim_status plim__replay_moving(const struct plim_requests *q,
                                                   const struct plim_replay_setup *setup,
                                                   uint64_t total, struct plim_replay_result *out,
                                                   struct plim_err *err);

/* One pass of the self-check with the given changes of settings, which are [n] in order. */
PLIM_MUST_USE enum plim_status plim__selfcheck_once(const struct plim_requests *requests,
                                                    uint64_t capacity,
                                                    const struct plim_settings_change *changes,
                                                    uint32_t n, struct plim_selfcheck *out,
                                                    struct plim_err *err);

#endif
