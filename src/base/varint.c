/* SPDX-License-Identifier: Apache-2.0 */
/* Variable-length numbers; see varint.h. */

#include "base/varint.h"

void plim__varint_put(struct plim_buf *out, uint64_t v)
{
    uint8_t bytes[PLIM_VARINT_MAX];
    size_t n = 0;
    while (v >= 0x80) {
        bytes[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    bytes[n++] = (uint8_t)v;
    plim_buf_add(out, (struct plim_str){(const char *)bytes, n});
}

uint64_t plim__varint_get(struct plim_cursor *c)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && c->p < c->end; shift += 7) {
        uint8_t byte = *c->p++;
        if (shift == 63 && byte > 1) {
            break; /* more than 64 bits */
        }
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return c->bad ? 0 : v;
        }
    }
    c->bad = true;
    c->p = c->end;
    return 0;
}

void plim__text_put(struct plim_buf *out, struct plim_str s)
{
    plim__varint_put(out, s.n);
    plim_buf_add(out, s);
}

struct plim_str plim__text_get(struct plim_cursor *c)
{
    uint64_t n = plim__varint_get(c);
    if (c->bad || n > (uint64_t)(c->end - c->p)) {
        c->bad = true;
        return (struct plim_str){"", 0};
    }
    struct plim_str s = {(const char *)c->p, (size_t)n};
    c->p += n;
    return s;
}
