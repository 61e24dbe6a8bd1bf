/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_CLI_READING_H
#define PLIM_CLI_READING_H

/* PLIM_OPTIONS_READING of options.h in the words of the snapshot reader. */

#include "format/snapshot_read.h"

/* The limits that the user set, of any struct that has these options; 0 stands for the default. */
#define PLIM_READ_LIMITS(o)                                                                        \
    ((struct plim_read_limits){                                                                    \
        .memory = (o)->memory_budget.value,                                                        \
        .string = (o)->max_string.value,                                                           \
        .memo = (o)->max_memo.value,                                                               \
        .nesting = (o)->max_nesting.value,                                                         \
    })

#endif
