/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_RECORD_TOY_H
#define PLIM_TESTS_RECORD_TOY_H

/* What the toy writes and the check expects: the size of event i. */

#include <stdint.h>

static inline uint64_t toy_size(uint64_t i)
{
    return i * UINT64_C(2654435761) % (UINT64_C(1) << 30);
}

#endif
