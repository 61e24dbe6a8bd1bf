/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HTTP_CURL_H
#define PLIM_HTTP_CURL_H

/*
 * libcurl, loaded when it is first needed: whoever fetches or sends by HTTP opens it here and calls its
 * functions through the table.
 *
 * Linked in, the library and what it needs would cost each start of the program 8 ms and 8 MiB of resident
 * memory (Debian 12), with or without an engine to ask; and a program that carries its libraries in itself
 * could not have it. So its header is needed to build, its shared object only to fetch.
 * Threads: the table is constant once it is open; libcurl's own rules hold for handles. Opening is safe in
 * several threads with libcurl 7.84 and later; before that, open before other threads start.
 */

#include "base/err.h"

#define CURL_DISABLE_TYPECHECK /* the checks are macros around the functions' plain names */
#include <curl/curl.h>

/* X(member, symbol, type of the result, parameters) */
#define PLIM_CURL_MAP(X)                                                                           \
    X(global_init, curl_global_init, CURLcode, (long))                                             \
    X(version_info, curl_version_info, curl_version_info_data *, (CURLversion))                    \
    X(easy_init, curl_easy_init, CURL *, (void))                                                   \
    X(easy_setopt, curl_easy_setopt, CURLcode, (CURL *, CURLoption, ...))                          \
    X(easy_getinfo, curl_easy_getinfo, CURLcode, (CURL *, CURLINFO, ...))                          \
    X(easy_perform, curl_easy_perform, CURLcode, (CURL *))                                         \
    X(easy_reset, curl_easy_reset, void, (CURL *))                                                 \
    X(easy_strerror, curl_easy_strerror, const char *, (CURLcode))                                 \
    X(easy_cleanup, curl_easy_cleanup, void, (CURL *))                                             \
    X(slist_append, curl_slist_append, struct curl_slist *, (struct curl_slist *, const char *))   \
    X(slist_free_all, curl_slist_free_all, void, (struct curl_slist *))                            \
    X(multi_init, curl_multi_init, CURLM *, (void))                                                \
    X(multi_add_handle, curl_multi_add_handle, CURLMcode, (CURLM *, CURL *))                       \
    X(multi_remove_handle, curl_multi_remove_handle, CURLMcode, (CURLM *, CURL *))                 \
    X(multi_perform, curl_multi_perform, CURLMcode, (CURLM *, int *))                              \
    X(multi_poll, curl_multi_poll, CURLMcode,                                                      \
      (CURLM *, struct curl_waitfd *, unsigned, int, int *))                                       \
    X(multi_wakeup, curl_multi_wakeup, CURLMcode, (CURLM *))                                       \
    X(multi_info_read, curl_multi_info_read, CURLMsg *, (CURLM *, int *))                          \
    X(multi_cleanup, curl_multi_cleanup, CURLMcode, (CURLM *))

/* curl.h has macros of some of these names; the members do not. */
struct plim_curl {
    void *library; /* owned, of dlopen */
#define PLIM__X(member, symbol, type, parameters) type(*member) parameters;
    PLIM_CURL_MAP(PLIM__X)
#undef PLIM__X
};

/**
 * plim_curl_open() - load and start it; again is cheap. It stays loaded until the program ends, as its TLS
 * library cannot be unloaded safely.
 * Errors: PLIM_E_UNSUPPORTED it is not installed (the hint names the package), or too old: 7.68 (2020) will do.
 */
PLIM_MUST_USE enum plim_status plim_curl_open(struct plim_curl *out, struct plim_err *err);

#endif
