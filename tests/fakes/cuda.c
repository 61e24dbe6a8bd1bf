/* SPDX-License-Identifier: Apache-2.0 */

/* A made-up libcuda.so.1 for tests: it only knows its version, FAKE_CUDA_VERSION or 12040. */

#include <stdlib.h>

int cuDriverGetVersion(int *version);

__attribute__((visibility("default"))) int cuDriverGetVersion(int *version)
{
    const char *text = getenv("FAKE_CUDA_VERSION");
    *version = text ? atoi(text) : 12040;
    return 0;
}
