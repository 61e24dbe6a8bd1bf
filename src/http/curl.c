/* SPDX-License-Identifier: Apache-2.0 */

/* Finding libcurl's shared object and its functions. */

#include "http/curl.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

/* One interface under several names: with OpenSSL (most systems), Debian's with GnuTLS. */
static void *load(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

/* A symbol as a function pointer; POSIX guarantees that this conversion works. */
static bool find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof(symbol));
    return symbol != NULL;
}

enum plim_status plim_curl_open(struct plim_curl *out, struct plim_err *err)
{
    struct plim_curl curl = {.library = load()};
    if (curl.library == NULL) {
        plim__err_set(err, PLIM_E_UNSUPPORTED,
                      "libcurl is not installed, so nothing can be fetched by HTTP");
        plim__err_hint(err, "install libcurl4 (Debian, Ubuntu) or libcurl (Fedora, Alpine)");
        return PLIM_E_UNSUPPORTED;
    }
#define FIND(member, symbol, type, parameters)                                                     \
    if (!find(curl.library, #symbol, &curl.member)) {                                              \
        return plim__fail(err, PLIM_E_UNSUPPORTED, "this libcurl has no %s: it is too old",        \
                          #symbol);                                                                \
    }
    PLIM_CURL_MAP(FIND)
#undef FIND
    if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        return plim__fail(err, PLIM_E_UNSUPPORTED, "libcurl does not start");
    }
    *out = curl;
    return PLIM_OK;
}
