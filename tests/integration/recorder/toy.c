/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that carries its own copy of a runtime, as cuBLAS, cuDNN and NCCL do: it names neither
 * libcudart nor libcuda as a dependency, opens the driver by itself and finds everything by
 * cuGetProcAddress.
 */

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

typedef int get_proc(const char *symbol, void **out, int version, unsigned long long flags,
                     int *status);

/* The runtime inside. */
static int toy_malloc(void **out, size_t bytes)
{
    int status;
    uint64_t addr = 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *p = NULL;
    get_proc *get = driver == NULL ? NULL : (get_proc *)dlsym(driver, "cuGetProcAddress_v2");
    if (get == NULL || get("cuMemAlloc", &p, 12000, 0, &status) != 0 || p == NULL) {
        return 3;
    }
    int rc = ((int (*)(uint64_t *, size_t))p)(&addr, bytes);
    *out = (void *)(uintptr_t)addr;
    return rc;
}

void *toy_alloc(size_t bytes);
void *toy_alloc(size_t bytes)
{
    void *p = NULL;
    return toy_malloc(&p, bytes) == 0 ? p : NULL;
}
