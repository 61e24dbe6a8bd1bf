/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_BUILD_INTERNAL_H
#define PLIM_FORMAT_BUILD_INTERNAL_H

/*
 * Between the files of the builder: build.c (cells and boxes), build_event.c, build_heap.c (segments,
 * blocks, frames), build_settings.c, build_finish.c (putting together). Errors everywhere: PLIM_E_NOMEM
 * and PLIM_E_BUDGET; a value of the wrong type is no error but a note or finding.
 */

#include "format/build.h"

/* -- build.c ------------------------------------------------------------------------------------- */

static inline uint32_t plim__cell_of(const struct plim_build *b, struct plim_value v)
{
    return b->cells.items[v.u];
}

/* The box of a box cell. */
static inline struct plim_box *plim__box_of(struct plim_build *b, uint32_t cell)
{
    return &b->boxes.items[plim__cell_index(cell)];
}

/* A new empty box in *cell; more values into the box of `cell`. */
PLIM_MUST_USE enum plim_status plim__build_box_new(struct plim_build *b, uint32_t *cell,
                                                   enum plim_cell_kind kind, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__build_box_push(struct plim_build *b, uint32_t cell,
                                                    const struct plim_value *values, size_t n,
                                                    struct plim_err *err);

/* Give a box back, when its container has become something else. */
PLIM_MUST_USE enum plim_status plim__build_drop_box(struct plim_build *b, uint32_t cell,
                                                    struct plim_err *err);

/* Recognise a boxed dict by its keys, now that it is put to use; no-op for everything else. */
PLIM_MUST_USE enum plim_status plim__build_settle(struct plim_build *b, struct plim_value v,
                                                  struct plim_err *err);

/* The same for each step-th of n values that go into `container`, which must not be among them. */
PLIM_MUST_USE enum plim_status plim__build_settle_all(struct plim_build *b,
                                                      struct plim_value container,
                                                      const struct plim_value *values, size_t n,
                                                      size_t step, struct plim_err *err);

/* The last value of `key` in a boxed dict; kind NONE when absent or v is no boxed dict. */
struct plim_value plim__build_get(struct plim_build *b, struct plim_value dict, enum plim_word key);

/* -- build_list.c -------------------------------------------------------------------------------- */

/* The elements of any list: n of them, element i by plim__build_item(). False: not a list. */
bool plim__build_is_list(const struct plim_build *b, struct plim_value v, size_t *n);
struct plim_value plim__build_item(struct plim_build *b, struct plim_value list, size_t i,
                                   uint32_t *cell);

/* Count a key that has no meaning here. */
PLIM_MUST_USE enum plim_status plim__build_unknown(struct plim_build *b, struct plim_value key,
                                                   struct plim_err *err);

/* "list", "string" ... for messages. */
const char *plim__build_describe(const struct plim_build *b, struct plim_value v);

/* -- build_heap.c -------------------------------------------------------------------------------- */

/* The stack that a list of frames is. *id is PLIM_NO_STACK when v is something else. */
PLIM_MUST_USE enum plim_status plim__build_stack(struct plim_build *b, struct plim_value v,
                                                 uint32_t *id, struct plim_err *err);

/* C++ frames and Python frames that old versions kept apart, as one stack, C++ innermost. */
PLIM_MUST_USE enum plim_status plim__build_join(struct plim_build *b, uint32_t cpp, uint32_t python,
                                                uint32_t *id, struct plim_err *err);

/* Stream and pool as small indices; false in *ok when the value is of a wrong type. */
PLIM_MUST_USE enum plim_status plim__build_stream(struct plim_build *b, struct plim_value v,
                                                  uint16_t *index, bool *ok, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__build_pool(struct plim_build *b, struct plim_value v,
                                                uint16_t *index, bool *ok, struct plim_err *err);

/* Set pairs [2n] on element `index` of a column, or on a new one when it is PLIM_NEW. */
#define PLIM_NEW SIZE_MAX
PLIM_MUST_USE enum plim_status plim__build_frame(struct plim_build *b,
                                                 const struct plim_value *pairs, size_t n,
                                                 size_t *index, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__build_segment(struct plim_build *b,
                                                   const struct plim_value *pairs, size_t n,
                                                   size_t *index, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__build_block(struct plim_build *b,
                                                 const struct plim_value *pairs, size_t n,
                                                 size_t *index, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__build_past(struct plim_build *b,
                                                const struct plim_value *pairs, size_t n,
                                                size_t *index, struct plim_err *err);

/* -- build_event.c ------------------------------------------------------------------------------- */

PLIM_MUST_USE enum plim_status plim__build_event(struct plim_build *b,
                                                 const struct plim_value *pairs, size_t n,
                                                 size_t *index, struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__build_annotation(struct plim_build *b,
                                                      const struct plim_value *pairs, size_t n,
                                                      size_t *index, struct plim_err *err);

/* Look at an entry that said too little, now that it is complete: it becomes "unknown", with a finding. */
PLIM_MUST_USE enum plim_status plim__build_doubt(struct plim_build *b, size_t event,
                                                 struct plim_err *err);

/* -- build_settings.c ---------------------------------------------------------------------------- */

PLIM_MUST_USE enum plim_status plim__build_settings(struct plim_build *b, struct plim_value v,
                                                    struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__build_host(struct plim_build *b, struct plim_value v,
                                                struct plim_err *err);

/* -- build_layout.c ------------------------------------------------------------------------------ */

/* Heaps from segments, traces from runs; see build_finish.c for who calls them. */
PLIM_MUST_USE enum plim_status plim__build_heaps(struct plim_build *b, struct plim_value segments,
                                                 struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__build_traces(struct plim_build *b, struct plim_value traces,
                                                  struct plim_err *err);

#endif
