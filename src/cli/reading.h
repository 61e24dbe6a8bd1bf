/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_READING_H
#define PLIM_CLI_READING_H

/* PLIM_OPTIONS_READING of options.h in the words of the snapshot reader, and what verbs that read check. */

#include "cli/verbs.h"
#include "format/snapshot_read.h"

/* The limits that the user set, of any struct that has these options; 0 stands for the default. */
#define PLIM_READ_LIMITS(o)                                                                        \
    ((struct plim_read_limits){                                                                    \
        .memory = (o)->memory_budget.value,                                                        \
        .string = (o)->max_string.value,                                                           \
        .memo = (o)->max_memo.value,                                                               \
        .nesting = (o)->max_nesting.value,                                                         \
    })

/** plim_check_device_memory() - a device of nothing is a slip. Errors: PLIM_E_USAGE. */
PLIM_MUST_USE static inline enum plim_status
plim_check_device_memory(struct plim_opt_u64 device_memory, struct plim_err *err)
{
    return device_memory.given && device_memory.value == 0
               ? plim__fail(err, PLIM_E_USAGE, "--device-memory must be above 0")
               : PLIM_OK;
}

#endif
