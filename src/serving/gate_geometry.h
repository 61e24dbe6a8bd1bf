/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_GATE_GEOMETRY_H
#define PLIM_SERVING_GATE_GEOMETRY_H

/* From what a model keeps on a device to the gate's groups: plimsoll/gate.h prices requests by them. */

#include "serving/kv.h"
#include "serving/vllm.h"

#include <plimsoll/gate.h>

/**
 * plim_gate_from_vllm() - groups, pool, lengths as the engine's start was played: a unit is a block of the pool
 * that all groups draw from. Groups that are priced alike are one with several units for each block.
 * @config: from plimsoll_gate_defaults(); only geometry, pool, max_length and step_tokens are written.
 * Errors: PLIM_E_UNSUPPORTED more kinds of groups than a gate has, or a pool beyond its range; PLIM_E_DATA an
 * engine that does not start.
 */
PLIM_MUST_USE enum plim_status plim_gate_from_vllm(const struct plim_vllm_start *start,
                                                   struct plimsoll_gate_config *config,
                                                   struct plim_err *err);

/**
 * plim_gate_from_kv() - the same for a server that keeps keys and values without blocks: a unit is 512
 * bytes, or so many times as many that `pool_bytes` is in range.
 * @dcp: as for plim_kv_sequence_bytes(). Errors: PLIM_E_UNSUPPORTED more windows than a gate has groups;
 * PLIM_E_USAGE no pool.
 */
PLIM_MUST_USE enum plim_status plim_gate_from_kv(const struct plim_kv_list *list, uint32_t dcp,
                                                 uint64_t pool_bytes,
                                                 struct plimsoll_gate_config *config,
                                                 struct plim_err *err);

#endif
