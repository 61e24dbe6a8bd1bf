/* SPDX-License-Identifier: Apache-2.0 */

/* Making foreign text harmless to terminals and readers. */

#include "observe/printable.h"

void plim_printable(char *out, size_t size, struct plim_str s)
{
    size_t to = 0;
    while (s.n > 0 && to + 1 < size) {
        size_t n = plim_str_utf8(s);
        unsigned char byte = (unsigned char)s.p[0];
        if (n > size - 1 - to) {
            break;
        }
        if (n > 1) {
            memcpy(out + to, s.p, n);
        } else {
            out[to] = (char)(byte < 0x20 || byte == 0x7f ? ' ' : n == 0 ? '?' : byte);
        }
        n = n == 0 ? 1 : n;
        to += n;
        s = plim_str_skip(s, n);
    }
    out[to] = '\0';
}
