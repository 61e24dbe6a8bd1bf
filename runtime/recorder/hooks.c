/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hooks: one function for each row of hooks.def, all of one form.
 *
 *   enter   find the real function; when nothing is to be recorded, call it and be done
 *   before  what must be written down first (releases)
 *   real    the real call, with the caller's arguments
 *   after   what is known only now
 *   leave   give back the thread's state; the result is the real call's
 *
 * The thread is `busy` in `before` and `after`, not during the real call.
 */

#include "record.h"

#include <sys/syscall.h>
#include <unistd.h>

#define API       __attribute__((visibility("default")))
#define NOT_THERE 3 /* CUDA_ERROR_NOT_INITIALIZED: there is no real function to call */

__thread struct plim__thread plim__self __attribute__((tls_model("initial-exec")));

static inline void know_thread(struct plim__thread *self)
{
    if (__builtin_expect(self->epoch != plim__rec.epoch, 0)) {
        self->id = (uint32_t)syscall(SYS_gettid);
        self->epoch = plim__rec.epoch;
        self->depth = 0;
        self->fired = 0;
    }
}

/* True when the call is to be recorded. c->real is set in any case. */
static inline bool enter(struct plim__call *c, unsigned id, unsigned level, unsigned kind,
                         void *site, void *frame)
{
    struct plim__thread *self = &plim__self;
    c->real = plim__real(id);
    if (c->real == NULL || !plim__on()) {
        return false;
    }
    if (self->busy != 0) {
        PLIM__COUNT(nested);
        return false;
    }
    self->busy = 1;
    know_thread(self);
    c->id = (uint16_t)id;
    c->level = (uint8_t)level;
    c->kind = (uint8_t)kind;
    c->measuring = false;
    c->gave = false;
    c->late_class = 0;
    c->key = 0;
    c->outermost = level == PLIM__RUNTIME && self->depth == 0;
    if (self->depth == 0) {
        c->site = (uintptr_t)site;
        c->frame = (uintptr_t)frame;
    } else {
        c->site = self->site;
        c->frame = self->frame;
    }
    if (level == PLIM__RUNTIME) {
        self->depth++;
        self->site = c->site;
        self->frame = c->frame;
        c->fired = self->fired;
        self->fired = 0;
        self->given = 0;
    }
    c->begin_ns = plim__now();
    return true;
}

static inline void leave(struct plim__call *c)
{
    struct plim__thread *self = &plim__self;
    if (c->gave || c->late_class != 0) {
        plim__settle(c);
    }
    if (c->level == PLIM__RUNTIME) {
        self->depth--;
        self->fired |= c->fired;
    }
    self->fired |= (uint64_t)1 << c->kind;
    self->busy = 0;
}

#define PLIM__NOTHING  (void)0
#define PLIM__GOT(out) (c->result == 0 && (out) != NULL ? PLIM__KEY(*(out)) : 0)
#define PLIM__AREA(pitch, width, height)                                                           \
    ((c->result == 0 && (pitch) != NULL ? *(pitch) : (width)) * (height))

#define LOOKUP(level, symbol, since)
#define ALIAS(base, symbol, since)
#define HOOK(level, symbol, since, does, params, args, before, after)                              \
    API int symbol params;                                                                         \
    API int symbol params                                                                          \
    {                                                                                              \
        struct plim__call call, *c = &call;                                                        \
        if (!enter(c, PLIM__CALL_##symbol, PLIM__##level, PLIM_EVENT_##does,                       \
                   __builtin_return_address(0), __builtin_frame_address(0))) {                     \
            return c->real == NULL ? NOT_THERE : ((int(*) params)c->real)args;                     \
        }                                                                                          \
        before;                                                                                    \
        plim__self.busy = 0;                                                                       \
        c->result = ((int(*) params)c->real)args;                                                  \
        plim__self.busy = 1;                                                                       \
        after;                                                                                     \
        leave(c);                                                                                  \
        return c->result;                                                                          \
    }
#include "hooks.def"
#undef HOOK
#undef ALIAS
#undef LOOKUP
