/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_DEVICE_PYTHON_H
#define PLIM_DEVICE_PYTHON_H

/*
 * Which Python a user's `python3` is and which packages it has, from the packages' metadata: nothing is
 * imported (importing torch takes seconds and can start the GPU driver).
 */

#include "base/err.h"

#include <stdbool.h>

#define PLIM_PACKAGE_TEXT 48

/* X(field, name of the distribution): what the doctor looks for. */
#define PLIM_PACKAGE_MAP(X)                                                                        \
    X(torch, "torch")                                                                              \
    X(vllm, "vllm")                                                                                \
    X(sglang, "sglang")                                                                            \
    X(transformers, "transformers")                                                                \
    X(jax, "jax")

struct plim_python {
    char executable[256];                                   /* sys.executable */
    char version[32];                                       /* "3.11.2" */
#define PLIM__X(field, name) char field[PLIM_PACKAGE_TEXT]; /* version, "" when not installed */
    PLIM_PACKAGE_MAP(PLIM__X)
#undef PLIM__X
};

/**
 * plim_python_find() - ask the first python3 (else python) on the PATH.
 * Runs it isolated (-I) for at most `timeout_ms`; nothing of the packages is imported.
 * Errors: PLIM_E_NOTFOUND no Python on the PATH; PLIM_E_UNSUPPORTED it did not answer in time or sense.
 */
PLIM_MUST_USE enum plim_status plim_python_find(int timeout_ms, struct plim_python *out,
                                                struct plim_err *err);

#endif
