/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_OBSERVE_PRINTABLE_H
#define PLIM_OBSERVE_PRINTABLE_H

/* Foreign text for a field of fixed size: other people's labels and log lines. */

#include "base/str.h"

/** plim_printable() - as much of `s` as fits, with a NUL: control bytes become blanks, bytes that are no UTF-8
 * become '?', and no character is cut in two. @size: > 0. */
void plim_printable(char *out, size_t size, struct plim_str s);

#endif
