/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A made-up libcuda.so.1 for tests: it knows its version, FAKE_CUDA_VERSION or 12040, and exports a function
 * that is recorded, one that is passed on purpose, and one that nobody has heard of.
 */

#include <stdlib.h>

int cuDriverGetVersion(int *version);

__attribute__((visibility("default"))) int cuDriverGetVersion(int *version)
{
    const char *text = getenv("FAKE_CUDA_VERSION");
    *version = text ? atoi(text) : 12040;
    return 0;
}

int cuMemAlloc_v2(void);
int cuMemGetAllocationGranularity(void);
int cuMemAllocFromTheMoon_v2(void);

__attribute__((visibility("default"))) int cuMemAlloc_v2(void)
{
    return 3;
}

__attribute__((visibility("default"))) int cuMemGetAllocationGranularity(void)
{
    return 3;
}

__attribute__((visibility("default"))) int cuMemAllocFromTheMoon_v2(void)
{
    return 3;
}
