/* SPDX-License-Identifier: Apache-2.0 */

/* The share of one device of a weight: pipeline stage, experts, tensor parallel division. */

#include "serving/weights.h"

#include "base/num.h"

static bool on_stage(const struct plim_geometry *g, const struct plim_placement *at,
                     const struct plim_weight *w)
{
    if (at->pp <= 1) {
        return true;
    }
    bool last = at->pp_rank + 1 == at->pp;
    if (w->layer == PLIM_NO_LAYER) {
        switch (w->part) {
        case PLIM_PART_EMBEDDING: /* a tied embedding is the output matrix too */
            return at->pp_rank == 0 || (g->tied && last);
        case PLIM_PART_HEAD:
        case PLIM_PART_MTP:
        case PLIM_PART_NORM:
            return last;
        case PLIM_PART_ATTENTION:
        case PLIM_PART_RECURRENT:
        case PLIM_PART_MLP:
        case PLIM_PART_EXPERTS:
        case PLIM_PART_SHARED:
        case PLIM_PART_ROUTER:
        case PLIM_PART_VISION:
        case PLIM_PART_ENCODER:
        case PLIM_PART_COUNT:
            return at->pp_rank == 0;
        }
    }
    uint32_t first = 0;
    uint32_t end = 0;
    plim_stage_layers(g->n_layers, at->pp, at->pp_rank, &first, &end);
    return w->layer >= first && w->layer < end;
}

static uint64_t share(uint64_t n, uint64_t parts)
{
    return n / parts + (n % parts != 0 ? 1 : 0);
}

/* Heads of a kind that is replicated where there are fewer of them than devices. */
static uint64_t share_of_heads(uint64_t rows, uint32_t heads, uint32_t tp)
{
    if (heads == 0) {
        return share(rows, tp);
    }
    return rows / heads * (heads >= tp ? share(heads, tp) : 1);
}

bool plim_weight_local(const struct plim_geometry *g, const struct plim_placement *at,
                       const struct plim_weight *w, struct plim_weight *out)
{
    if ((w->part == PLIM_PART_MTP && !at->mtp) || (w->part == PLIM_PART_VISION && at->no_vision) ||
        !on_stage(g, at, w)) {
        return false;
    }
    *out = *w;
    bool dealt = w->copies > 1 && at->ep > 1; /* whole experts to each device, none divided */
    if (dealt) {
        out->copies = share(w->copies, at->ep);
        return true;
    }
    switch (w->split) {
    case PLIM_SPLIT_ROWS:
        out->rows = share(w->rows, at->tp);
        break;
    case PLIM_SPLIT_COLS:
        out->cols = share(w->cols, at->tp);
        break;
    case PLIM_SPLIT_KV:
        out->rows = share_of_heads(w->rows, w->kv_heads, at->tp);
        out->kv_heads = w->kv_heads >= at->tp ? (uint32_t)share(w->kv_heads, at->tp) : 1;
        break;
    case PLIM_SPLIT_VOCAB:
        out->rows = share(plim_round_up(w->rows, at->vocab_pad > 1 ? at->vocab_pad : 1), at->tp);
        break;
    case PLIM_SPLIT_NONE:
        break;
    }
    return true;
}
