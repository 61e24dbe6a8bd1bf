/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_TRACE_OWNERS_H
#define PLIM_FORMAT_TRACE_OWNERS_H

/* Questions about one recorded event that several files ask. Pure. */

#include <plimsoll/event.h>

#include <stdbool.h>

#define PLIM__CUDA_OUT_OF_MEMORY 2 /* the same number at both levels: cuda-memory errors */

/* Owners that are a framework's caching allocator. */
#define PLIM__FRAMEWORK_OWNERS (1u << PLIM_OWNER_TORCH | 1u << PLIM_OWNER_PLUGGABLE)

/* Owners that are the program itself, when it has no framework. */
#define PLIM__PROGRAM_OWNERS                                                                       \
    (1u << PLIM_OWNER_UNKNOWN | 1u << PLIM_OWNER_APPLICATION | 1u << PLIM_OWNER_OTHER |            \
     1u << PLIM_OWNER_TORCH_OTHER | 1u << PLIM_OWNER_TRITON)

static inline bool plim__is_framework(uint8_t owner)
{
    return owner < 32 && (PLIM__FRAMEWORK_OWNERS >> owner & 1u) != 0;
}

/* A request for device memory that the driver refused because there is none. */
static inline bool plim__event_failed(const struct plim_gpu_event *e)
{
    return e->result == PLIM__CUDA_OUT_OF_MEMORY &&
           (e->kind == PLIM_EVENT_ALLOC || e->kind == PLIM_EVENT_CREATE ||
            e->kind == PLIM_EVENT_POOL_ALLOC || e->kind == PLIM_EVENT_ARRAY_ALLOC ||
            e->kind == PLIM_EVENT_MANAGED_ALLOC);
}

/* Of those kinds, one that was served. */
static inline bool plim__event_served(const struct plim_gpu_event *e)
{
    return e->result == 0 &&
           (e->kind == PLIM_EVENT_ALLOC || e->kind == PLIM_EVENT_CREATE ||
            e->kind == PLIM_EVENT_POOL_ALLOC || e->kind == PLIM_EVENT_ARRAY_ALLOC ||
            e->kind == PLIM_EVENT_MANAGED_ALLOC);
}

#endif
