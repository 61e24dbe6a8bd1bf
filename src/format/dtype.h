/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_DTYPE_H
#define PLIM_FORMAT_DTYPE_H

/*
 * How elements of a tensor are stored. One table for all model files, so that "bytes of n elements" has
 * one meaning: `block` elements take `bytes` bytes, and n must be a multiple of `block`.
 * Sources: safetensors README (element types); gguf 0.19.0 gguf/constants.py GGML_QUANT_SIZES (the
 * packed types; their numbers in a file are in format/gguf.c). Threads: pure.
 */

#include "base/str.h"

/* X(name, text as in files, elements of a block, bytes of a block) */
#define PLIM_DTYPE_MAP(X)                                                                          \
    X(UNKNOWN, "unknown", 1, 0)                                                                    \
    X(BOOL, "BOOL", 1, 1)                                                                          \
    X(U8, "U8", 1, 1)                                                                              \
    X(I8, "I8", 1, 1)                                                                              \
    X(F4, "F4", 2, 1)           /* E2M1, two elements a byte */                                    \
    X(F6_E2M3, "F6_E2M3", 4, 3) /* four elements in three bytes */                                 \
    X(F6_E3M2, "F6_E3M2", 4, 3)                                                                    \
    X(F8_E5M2, "F8_E5M2", 1, 1)                                                                    \
    X(F8_E4M3, "F8_E4M3", 1, 1)                                                                    \
    X(F8_E8M0, "F8_E8M0", 1, 1)                                                                    \
    X(I16, "I16", 1, 2)                                                                            \
    X(U16, "U16", 1, 2)                                                                            \
    X(F16, "F16", 1, 2)                                                                            \
    X(BF16, "BF16", 1, 2)                                                                          \
    X(I32, "I32", 1, 4)                                                                            \
    X(U32, "U32", 1, 4)                                                                            \
    X(F32, "F32", 1, 4)                                                                            \
    X(F64, "F64", 1, 8)                                                                            \
    X(I64, "I64", 1, 8)                                                                            \
    X(U64, "U64", 1, 8)                                                                            \
    X(C64, "C64", 1, 8)                                                                            \
    X(Q4_0, "Q4_0", 32, 18)                                                                        \
    X(Q4_1, "Q4_1", 32, 20)                                                                        \
    X(Q5_0, "Q5_0", 32, 22)                                                                        \
    X(Q5_1, "Q5_1", 32, 24)                                                                        \
    X(Q8_0, "Q8_0", 32, 34)                                                                        \
    X(Q8_1, "Q8_1", 32, 40)                                                                        \
    X(Q2_K, "Q2_K", 256, 84)                                                                       \
    X(Q3_K, "Q3_K", 256, 110)                                                                      \
    X(Q4_K, "Q4_K", 256, 144)                                                                      \
    X(Q5_K, "Q5_K", 256, 176)                                                                      \
    X(Q6_K, "Q6_K", 256, 210)                                                                      \
    X(Q8_K, "Q8_K", 256, 292)                                                                      \
    X(IQ2_XXS, "IQ2_XXS", 256, 66)                                                                 \
    X(IQ2_XS, "IQ2_XS", 256, 74)                                                                   \
    X(IQ3_XXS, "IQ3_XXS", 256, 98)                                                                 \
    X(IQ1_S, "IQ1_S", 256, 50)                                                                     \
    X(IQ4_NL, "IQ4_NL", 32, 18)                                                                    \
    X(IQ3_S, "IQ3_S", 256, 110)                                                                    \
    X(IQ2_S, "IQ2_S", 256, 82)                                                                     \
    X(IQ4_XS, "IQ4_XS", 256, 136)                                                                  \
    X(IQ1_M, "IQ1_M", 256, 56)                                                                     \
    X(TQ1_0, "TQ1_0", 256, 54)                                                                     \
    X(TQ2_0, "TQ2_0", 256, 66)                                                                     \
    X(MXFP4, "MXFP4", 32, 17)                                                                      \
    X(NVFP4, "NVFP4", 64, 36)                                                                      \
    X(Q1_0, "Q1_0", 128, 18)

enum plim_dtype {
#define PLIM__X(name, text, block, bytes) PLIM_DTYPE_##name,
    PLIM_DTYPE_MAP(PLIM__X)
#undef PLIM__X
    PLIM_DTYPE_COUNT
};

/** plim_dtype_text() - the name as in files; never NULL. */
const char *plim_dtype_text(enum plim_dtype dtype);

/** plim_dtype_from() - by that name, exactly; PLIM_DTYPE_UNKNOWN when there is no such. */
enum plim_dtype plim_dtype_from(struct plim_str text);

/** plim_dtype_block() - elements of a block, and in *bytes the bytes it takes. */
uint32_t plim_dtype_block(enum plim_dtype dtype, uint32_t *bytes);

/**
 * plim_dtype_bytes() - bytes of n elements; false, *out untouched, when n is no multiple of the block,
 * the product exceeds 64 bits or the type is unknown.
 */
bool plim_dtype_bytes(enum plim_dtype dtype, uint64_t n, uint64_t *out);

#endif
