/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_FIELDS_H
#define PLIM_SERVING_FIELDS_H

/*
 * Reading configuration objects field by field, and keeping book of where each value came from.
 *
 * A field is looked for under several keys (words of one text, the first present wins), first in the object,
 * then in the defaults of its class. null counts as absent. Errors are sticky: after the first, readers
 * return 0 and `st` says why, so that a caller asks once at the end. Everything internal to this layer.
 */

#include "base/vec.h"
#include "serving/family.h"
#include "serving/geometry.h"

#include <jansson.h>

struct plim__config {
    struct plim_arena *arena;
    struct plim_geometry *g;
    const char *name; /* of the file, for messages */
    json_t *classes;  /* owned: class_defaults.json, an object for each model_type */
    json_t *root;     /* owned: the whole file */
    const struct plim__family *family;
    PLIM_VEC(struct plim_origin) origins;
    PLIM_VEC(const char *) notes;
    enum plim_status st;
    struct plim_err *err; /* nullable */
};

/* One object of the file, with what its class takes for absent keys. */
struct plim__node {
    json_t *object;         /* borrowed; NULL: everything is absent */
    json_t *defaults;       /* borrowed, or NULL */
    const char *path;       /* "" or "text_config." */
    const char *class_name; /* whose defaults they are, "" for none */
};

/** plim__node_of() - the node of `object`, whose class is `model_type` (may be unknown: no defaults). */
struct plim__node plim__node_of(const struct plim__config *c, json_t *object, const char *path,
                                const char *model_type);

/** plim__config_fail() - record an error about a key of a node, once. Returns the sticky status. */
enum plim_status plim__config_fail(struct plim__config *c, enum plim_status st,
                                   const struct plim__node *node, const char *key, const char *fmt,
                                   ...) PLIM_PRINTF(5, 6);

/** plim__note() - a sentence for people about what was contradictory and what was done. */
void plim__note(struct plim__config *c, const char *fmt, ...) PLIM_PRINTF(2, 3);

/** plim__origin() - book a value that this library derived (kind RULE) or took (others). */
void plim__origin(struct plim__config *c, const char *field, const char *key,
                  enum plim_origin_kind kind, uint64_t value);

/** plim__origin_of() - the key of a booked field, "" when it is not booked. Borrowed. */
const char *plim__origin_of(const struct plim__config *c, const char *field);

/** plim__get() - the value of the first of `keys` in the object; NULL when absent or null. *key (nullable)
 * then is arena-owned. */
json_t *plim__get(struct plim__config *c, const struct plim__node *node, const char *keys,
                  const char **key);

/** plim__has() - one of `keys` is in the object and not null. */
bool plim__has(struct plim__config *c, const struct plim__node *node, const char *keys);

/** plim__u32() - a dimension in [0, PLIM_DIM_MAX]; 0 when absent everywhere. Books its origin under `field`.
 * An array where a number is expected is an error. */
uint32_t plim__u32(struct plim__config *c, const struct plim__node *node, const char *field,
                   const char *keys);

/** plim__need() - the same, and an error when it is absent everywhere or 0. */
uint32_t plim__need(struct plim__config *c, const struct plim__node *node, const char *field,
                    const char *keys);

/** plim__u32_at() - as plim__u32(), but the file may have an array of `n` values, one a layer. */
uint32_t plim__u32_at(struct plim__config *c, const struct plim__node *node, const char *field,
                      const char *keys, uint32_t i, uint32_t n);

/** plim__tokens() - as plim__u32(), for positions and windows: up to 2^31 - 1. */
uint32_t plim__tokens(struct plim__config *c, const struct plim__node *node, const char *field,
                      const char *keys);

/** plim__derived() - a size computed from others, at most PLIM__DERIVED_MAX; else an error about `key`. */
#define PLIM__DERIVED_MAX (UINT64_C(1) << 24)
uint32_t plim__derived(struct plim__config *c, const struct plim__node *node, const char *key,
                       uint64_t value);

/** plim__flag() - true or false (0 and 1 too); `absent` when it is nowhere. */
bool plim__flag(struct plim__config *c, const struct plim__node *node, const char *keys,
                bool absent);

/** plim__switch() - a switch of a family (see serving/family.h). */
bool plim__switch(struct plim__config *c, const struct plim__node *node, const char *rule);

/** plim__text() - a text, arena-owned, or NULL when absent; an error when it is something else. */
const char *plim__text(struct plim__config *c, const struct plim__node *node, const char *keys);

/** plim__real() - a number; `absent` when it is nowhere. */
double plim__real(struct plim__config *c, const struct plim__node *node, const char *keys,
                  double absent);

/** plim__child() - the object under the first of `keys`, or NULL; an error when it is something else. */
json_t *plim__child(struct plim__config *c, const struct plim__node *node, const char *keys);

/** plim__list() - the array under the first of `keys`, or NULL; an error when it is something else. */
json_t *plim__list(struct plim__config *c, const struct plim__node *node, const char *keys);

#endif
