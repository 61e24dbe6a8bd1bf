/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_ALLOC_CONF_INT_H
#define PLIM_ALLOC_CONF_INT_H

/*
 * Inside the settings parser: tokens and values (conf_token.c), the table of keys (conf_keys.c), and
 * the passes over the string (conf.c).
 */

#include "alloc/conf.h"

struct plim__conf_token {
    struct plim_str text; /* points into tokens.chars */
    size_t at;            /* byte offset in the settings string */
};

struct plim__conf_tokens {
    struct plim__conf_token items[PLIM_CONF_TOKENS];
    size_t n;
    char *chars; /* owned: the string without white space */
    bool strict; /* separators are checked (before 2.9) */
};

enum plim__conf_pass {
    PLIM__PASS_FIRST,  /* before the others: it is the floor of two of them */
    PLIM__PASS_COMMON, /* AcceleratorAllocatorConfig */
    PLIM__PASS_CUDA,   /* CUDAAllocatorConfig */
};

/* Reads the value of the key at *i and leaves *i on the value's last token. */
typedef enum plim_status plim__conf_take_fn(struct plim_conf *conf,
                                            const struct plim__conf_tokens *tk, size_t *i,
                                            struct plim_err *err);

struct plim__conf_key {
    const char *name;
    enum plim__conf_pass pass;
    uint8_t since; /* minor release of 2.x that brought it */
    plim__conf_take_fn *take;
};

/* ---- conf_token.c ---- */

/* Cut the string; tk->chars is to be freed also after an error. */
enum plim_status plim__conf_tokens_split(struct plim__conf_tokens *tk, struct plim_str text,
                                         struct plim_err *err);
bool plim__conf_token_is(const struct plim__conf_tokens *tk, size_t i, const char *z);
/* The error for a token behind the last. */
enum plim_status plim__conf_token_missing(struct plim_err *err);
/* Step onto the separator behind *i. */
enum plim_status plim__conf_token_separator(const struct plim__conf_tokens *tk, size_t *i,
                                            const char *z, struct plim_err *err);
/* Step onto the value behind "key:" and give it. */
enum plim_status plim__conf_value_text(const struct plim__conf_tokens *tk, size_t *i,
                                       struct plim_str *out, struct plim_err *err);
enum plim_status plim__conf_number_of(struct plim_str s, uint64_t *out, struct plim_err *err);
enum plim_status plim__conf_value_number(const struct plim__conf_tokens *tk, size_t *i,
                                         uint64_t *out, struct plim_err *err);
enum plim_status plim__conf_value_real(const struct plim__conf_tokens *tk, size_t *i, double *out,
                                       struct plim_err *err);
enum plim_status plim__conf_value_bool(const struct plim__conf_tokens *tk, size_t *i, bool *out,
                                       struct plim_err *err);

/* ---- conf_keys.c ---- */

/* The i-th key of any release, or NULL behind the last. */
const struct plim__conf_key *plim__conf_key_at(size_t i);
const struct plim__conf_key *plim__conf_key_find(struct plim_str name);
bool plim__conf_key_known(const struct plim__conf_key *key, struct plim_torch_version version);

#endif
