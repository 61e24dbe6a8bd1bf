/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_SHA256_H
#define PLIM_BASE_SHA256_H

/* SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104) of bytes in memory: for signatures of messages. Pure. */

#include "base/str.h"

#define PLIM_SHA256_BYTES 32
#define PLIM_SHA256_HEX   65 /* room for the digest in hexadecimal, NUL included */

void plim_sha256(struct plim_str bytes, uint8_t digest[PLIM_SHA256_BYTES]);

/** plim_hmac_sha256() - of any key, also an empty one. */
void plim_hmac_sha256(struct plim_str key, struct plim_str bytes,
                      uint8_t digest[PLIM_SHA256_BYTES]);

/** plim_sha256_hex() - a digest in lower case; returned. */
char *plim_sha256_hex(char text[PLIM_SHA256_HEX], const uint8_t digest[PLIM_SHA256_BYTES]);

#endif
