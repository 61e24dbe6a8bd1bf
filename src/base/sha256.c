/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 as FIPS 180-4, section 6.2, describes it; names of variables are those of the standard. */

#include "base/sha256.h"

#include <stdio.h>

#define BLOCK 64u

struct sha256 {
    uint32_t h[8];
    uint8_t block[BLOCK];
    size_t fill; /* bytes in `block` */
    uint64_t n;  /* bytes so far */
};

static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void compress(struct sha256 *s)
{
    uint32_t w[64];
    uint32_t v[8];
    for (size_t t = 0; t < 16; t++) {
        const uint8_t *p = s->block + 4 * t;
        w[t] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    for (size_t t = 16; t < 64; t++) {
        uint32_t s0 = rotr(w[t - 15], 7) ^ rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotr(w[t - 2], 17) ^ rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    memcpy(v, s->h, sizeof(v));
    for (size_t t = 0; t < 64; t++) {
        uint32_t e = v[4];
        uint32_t a = v[0];
        uint32_t t1 = v[7] + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & v[5]) ^ (~e & v[6])) +
                      k[t] + w[t];
        uint32_t t2 =
            (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (size_t i = 0; i < 8; i++) {
        s->h[i] += v[i];
    }
    s->fill = 0;
}

static void begin(struct sha256 *s)
{
    *s = (struct sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                               0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

static void add(struct sha256 *s, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    s->n += n;
    while (n > 0) {
        size_t part = BLOCK - s->fill < n ? BLOCK - s->fill : n;
        memcpy(s->block + s->fill, p, part);
        s->fill += part;
        p += part;
        n -= part;
        if (s->fill == BLOCK) {
            compress(s);
        }
    }
}

static void end(struct sha256 *s, uint8_t digest[PLIM_SHA256_BYTES])
{
    static const uint8_t padding[BLOCK] = {0x80};
    uint64_t bits = s->n * 8;
    uint8_t length[8];
    for (size_t i = 0; i < 8; i++) {
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    }
    add(s, padding, s->fill < 56 ? 56 - s->fill : 120 - s->fill);
    add(s, length, sizeof(length));
    for (size_t i = 0; i < PLIM_SHA256_BYTES; i++) {
        digest[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
    }
}

void plim_sha256(struct plim_str bytes, uint8_t digest[PLIM_SHA256_BYTES])
{
    struct sha256 s;
    begin(&s);
    add(&s, bytes.p, bytes.n);
    end(&s, digest);
}

void plim_hmac_sha256(struct plim_str key, struct plim_str bytes, uint8_t digest[PLIM_SHA256_BYTES])
{
    struct sha256 s;
    uint8_t own[BLOCK] = {0};
    uint8_t pad[BLOCK];
    if (key.n > BLOCK) {
        plim_sha256(key, own);
    } else if (key.n > 0) {
        memcpy(own, key.p, key.n);
    }
    for (size_t i = 0; i < BLOCK; i++) {
        pad[i] = own[i] ^ 0x36;
    }
    begin(&s);
    add(&s, pad, BLOCK);
    add(&s, bytes.p, bytes.n);
    end(&s, digest);
    for (size_t i = 0; i < BLOCK; i++) {
        pad[i] = own[i] ^ 0x5c;
    }
    begin(&s);
    add(&s, pad, BLOCK);
    add(&s, digest, PLIM_SHA256_BYTES);
    end(&s, digest);
}

char *plim_sha256_hex(char text[PLIM_SHA256_HEX], const uint8_t digest[PLIM_SHA256_BYTES])
{
    for (size_t i = 0; i < PLIM_SHA256_BYTES; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    }
    return text;
}
