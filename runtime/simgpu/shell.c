/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shell: a library with a vendor library's SONAME and version node and nothing of its own.
 *
 * The simulated device answers for all vendor libraries from one object, but the loader looks for
 * them by SONAME, and programs open some by name. A shell satisfies both, and depends on that object.
 * Only the CUDA runtime's version differs by library, so the runtime's shells answer it.
 */

__attribute__((visibility("default"))) extern const int SIM_SHELL;
const int SIM_SHELL = 1;

#ifdef SIM_RUNTIME_VERSION
__attribute__((visibility("default"))) int cudaRuntimeGetVersion(int *version);

int cudaRuntimeGetVersion(int *version)
{
    *version = SIM_RUNTIME_VERSION;
    return 0;
}
#endif
