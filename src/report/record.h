/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_RECORD_H
#define PLIM_REPORT_RECORD_H

/* The few lines at the end of a recording: who held what at the peak, what failed, what was lost. */

#include "base/buf.h"
#include "record/record.h"

void plim_text_record(struct plim_buf *out, const struct plim_record_setup *setup,
                      const struct plim_record_result *result);

#endif
