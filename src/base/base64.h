/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_BASE64_H
#define PLIM_BASE_BASE64_H

/** plim_base64_digit() - value of a base64 character, -1 for any other. Both alphabets (+/ and -_) are read. */
static inline int plim_base64_digit(int c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

#endif
