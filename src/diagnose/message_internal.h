/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DIAGNOSE_MESSAGE_INTERNAL_H
#define PLIM_DIAGNOSE_MESSAGE_INTERNAL_H

/* What the files of the message judge share. */

#include "base/bytes.h"
#include "base/num.h"
#include "diagnose/message.h"

/* Beyond this no size is real: 2^60 bytes; drivers and counters print such values for "none". */
#define PLIM__NO_SIZE (UINT64_C(1) << 60)

/*
 * What one process needs outside any allocator: CUDA context and kernels, 0.2 to 0.7 GiB, up to about
 * 1.2 GiB with many libraries loaded (PyTorch issues 20532 and 107667).
 */
#define PLIM__CONTEXT_LEAST   (PLIM_GIB / 5)
#define PLIM__CONTEXT_TYPICAL (PLIM_GIB / 2)
#define PLIM__CONTEXT_MOST    (PLIM_GIB * 7 / 10)
#define PLIM__CONTEXT_LOADED  (PLIM_GIB * 12 / 10)

/* One request larger than all but data-centre devices. */
#define PLIM__HUGE_REQUEST (40 * PLIM_GIB)

/* The PyTorch figures of one message, sorted out. Unknown = how UNKNOWN. */
struct plim__books {
    struct plim_amount total, free, request;
    struct plim_amount live; /* handed out, without free blocks of private pools */
    struct plim_amount private_free;
    struct plim_amount gap; /* reserved, neither live nor in private pools */
    struct plim_amount reserved;
    struct plim_amount cap;       /* explicit limit for this process */
    struct plim_amount own;       /* all of this process, by the driver */
    struct plim_amount own_other; /* own - reserved */
    struct plim_amount others;    /* everybody else */
    struct plim_amount listed;    /* the part of `others` that the message names */
    bool own_by_arithmetic;       /* the process was recognized by its size */
    bool own_hidden;              /* the message gives 0 or nonsense for this process */
};

/* One event on the bench. Failure to allocate is sticky in `st`. */
struct plim__case {
    const struct plim_oom_scan *scan;
    const struct plim_oom_event *event;
    const struct plim_oom_facts *facts;
    struct plim_arena *arena;
    struct plim_finding_set *set;
    struct plim__books books;
    enum plim_status st;
    struct plim_err *err; /* nullable */
};

/* ---- message_case.c: writing findings ---- */

/** plim__say() - printf into the arena; "" after a failure. */
const char *plim__say(struct plim__case *c, const char *fmt, ...) PLIM_PRINTF(2, 3);

/** plim__size() - a byte count as text in the arena. */
const char *plim__size(struct plim__case *c, uint64_t bytes);

void plim__verdict(struct plim__case *c, enum plim_class cls, enum plim_subclass sub,
                   double confidence, const char *summary);
void plim__evidence(struct plim__case *c, enum plim_how how, const char *text);
void plim__evidence_amount(struct plim__case *c, struct plim_amount amount, const char *text);
void plim__counterfactual(struct plim__case *c, const char *name, uint64_t gains, bool fits,
                          const char *text);
void plim__advice(struct plim__case *c, const char *action, const char *why);
void plim__advice_full(struct plim__case *c, const struct plim_advice *advice);
void plim__unknown(struct plim__case *c, const char *text);

/** plim__field() - a field as an amount; unknown when the text does not give it or it is nonsense. */
struct plim_amount plim__field(const struct plim__case *c, enum plim_oom_field field);
uint64_t plim__slop(const struct plim__case *c, enum plim_oom_field field);
bool plim__saw(const struct plim__case *c, enum plim_oom_meaning meaning);

/* ---- the judges ---- */

typedef void (*plim__judge)(struct plim__case *c);

/** plim__judge_of() - the judge for a meaning; NULL when the table below is enough. */
plim__judge plim__judge_of(enum plim_oom_meaning meaning);

/** plim__judge_fixed() - the verdict of message_fixed.c for the event's meaning. */
void plim__judge_fixed(struct plim__case *c);

void plim__judge_torch(struct plim__case *c); /* message_torch.c */
void plim__judge_async(struct plim__case *c); /* message_pool.c */
void plim__judge_mps(struct plim__case *c);
void plim__judge_xla(struct plim__case *c);
void plim__judge_xla_runtime(struct plim__case *c);
void plim__judge_own_pool(struct plim__case *c);
void plim__judge_tf(struct plim__case *c);
void plim__judge_cupy(struct plim__case *c);
void plim__judge_paddle(struct plim__case *c);
void plim__judge_request(struct plim__case *c);
void plim__judge_tensorrt(struct plim__case *c);
void plim__judge_julia(struct plim__case *c);
void plim__judge_vgpu(struct plim__case *c);
void plim__judge_driver(struct plim__case *c); /* message_driver.c */
void plim__judge_cumem(struct plim__case *c);
void plim__judge_ggml(struct plim__case *c);
void plim__judge_metal(struct plim__case *c);
void plim__judge_sglang(struct plim__case *c);
void plim__judge_startup(struct plim__case *c);
void plim__judge_killed(struct plim__case *c);
void plim__judge_growth(struct plim__case *c);

/* ---- message_books.c ---- */

/** plim__books_read() - sort out the figures of a PyTorch message and fill the ledger. */
void plim__books_read(struct plim__case *c);

/** plim__books_context() - what this process needs outside the allocator at the least. */
struct plim_amount plim__books_context(const struct plim__books *books);

/** plim__books_counterfactuals() - would the request have fitted, cause by cause. */
void plim__books_counterfactuals(struct plim__case *c);

/* ---- message_advice.c ---- */

void plim__advise_capacity(struct plim__case *c);
void plim__advise_fragmentation(struct plim__case *c);
void plim__advise_external(struct plim__case *c);
void plim__advise_leak(struct plim__case *c);
void plim__advise_engine(struct plim__case *c);
void plim__advise_unknown(struct plim__case *c);

#endif
