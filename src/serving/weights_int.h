/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_WEIGHTS_INT_H
#define PLIM_SERVING_WEIGHTS_INT_H

/* How the parts of a model write their weights into one list. Internal to this layer. */

#include "base/vec.h"
#include "serving/family.h"
#include "serving/weights.h"

struct plim__weights {
    const struct plim_geometry *g;
    const struct plim__family *family;
    PLIM_VEC(struct plim_weight) list;
    uint32_t layer; /* of the weights put next */
    bool retag;     /* everything put goes to `part_of` instead of its own part */
    enum plim_part part_of;
    struct plim_weight scrap; /* what plim__last() gives after an error: written, never read */
    enum plim_status st;      /* sticky */
    struct plim_err *err;
};

/** plim__put() - a matrix of a linear layer. @fused: NULL alone. */
void plim__put(struct plim__weights *w, enum plim_part part, const char *name, const char *fused,
               uint64_t rows, uint64_t cols, enum plim_split split);

/** plim__put_bias() - its bias, when `on`; whole on every device when the input features are divided. */
void plim__put_bias(struct plim__weights *w, bool on, enum plim_part part, const char *name,
                    const char *fused, uint64_t rows, enum plim_split split);

/** plim__put_vector() - values that are never quantized: norms, scalars, state matrices, tables. */
void plim__put_vector(struct plim__weights *w, enum plim_part part, const char *name, uint64_t rows,
                      uint64_t cols, enum plim_split split);

/** plim__put_norm() - weight and, by the family, bias of one norm of `n` elements. */
void plim__put_norm(struct plim__weights *w, enum plim_part part, const char *name, uint64_t n);

/** plim__last() - the weight put last, to say more about it; never NULL. */
struct plim_weight *plim__last(struct plim__weights *w);

/** plim__put_layer() - one decoder, encoder or MTP layer with all its norms. */
void plim__put_layer(struct plim__weights *w, const struct plim_layer *l);

/** plim__put_recurrent() - a recurrent mixer. */
void plim__put_recurrent(struct plim__weights *w, const struct plim_layer *l);

/** plim__put_vision() - a vision encoder and its projector. */
void plim__put_vision(struct plim__weights *w);

/** plim__scheme_of() - how a weight is packed; NULL: not quantized. */
const struct plim_quant_scheme *plim__scheme_of(const struct plim_geometry *g,
                                                const struct plim_weight *weight);

#endif
