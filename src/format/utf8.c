/* SPDX-License-Identifier: Apache-2.0 */
/* Code points to UTF-8, and hexadecimal digits. */

#include "format/utf8.h"

void plim__utf8(struct plim_buf *out, uint32_t c)
{
    if (c < 0x80) {
        plim_buf_char(out, (char)c);
    } else if (c < 0x800) {
        plim_buf_char(out, (char)(0xc0 | c >> 6));
        plim_buf_char(out, (char)(0x80 | (c & 0x3f)));
    } else if (c < 0x10000) {
        plim_buf_char(out, (char)(0xe0 | c >> 12));
        plim_buf_char(out, (char)(0x80 | (c >> 6 & 0x3f)));
        plim_buf_char(out, (char)(0x80 | (c & 0x3f)));
    } else {
        plim_buf_char(out, (char)(0xf0 | (c >> 18 & 7)));
        plim_buf_char(out, (char)(0x80 | (c >> 12 & 0x3f)));
        plim_buf_char(out, (char)(0x80 | (c >> 6 & 0x3f)));
        plim_buf_char(out, (char)(0x80 | (c & 0x3f)));
    }
}

int64_t plim__hex(const char *p, size_t n)
{
    int64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            return -1;
        }
        v = v << 4 | digit;
    }
    return v;
}
