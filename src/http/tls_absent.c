/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands for GnuTLS in a program that carries its libraries in itself (meson -Dprefer_static=true, the wheel).
 *
 * Debian's libmicrohttpd.a refers to GnuTLS, which cannot be linked in whole. Servers that speak plain HTTP never
 * call these: they are only there for the linker. A monitor that is given a certificate is refused, as by a library
 * that fails to start. GnuTLS returns negative numbers for failures and 0 for success.
 */

#include <stddef.h>

/* X(name): what would set up, run or end a TLS session. */
#define TLS_MAP(X)                                                                                 \
    X(alpn_set_protocols)                                                                          \
    X(bye)                                                                                         \
    X(certificate_allocate_credentials)                                                            \
    X(certificate_free_credentials)                                                                \
    X(certificate_server_set_request)                                                              \
    X(certificate_set_dh_params)                                                                   \
    X(certificate_set_retrieve_function2)                                                          \
    X(certificate_set_retrieve_function3)                                                          \
    X(certificate_set_x509_key_mem)                                                                \
    X(certificate_set_x509_key_mem2)                                                               \
    X(certificate_set_x509_trust_mem)                                                              \
    X(cipher_get)                                                                                  \
    X(credentials_set)                                                                             \
    X(deinit)                                                                                      \
    X(dh_params_deinit)                                                                            \
    X(dh_params_import_pkcs3)                                                                      \
    X(dh_params_init)                                                                              \
    X(handshake)                                                                                   \
    X(init)                                                                                        \
    X(priority_deinit)                                                                             \
    X(priority_init)                                                                               \
    X(priority_set)                                                                                \
    X(protocol_get_version)                                                                        \
    X(psk_allocate_server_credentials)                                                             \
    X(psk_free_server_credentials)                                                                 \
    X(psk_set_server_credentials_function)                                                         \
    X(record_check_pending)                                                                        \
    X(record_get_direction)                                                                        \
    X(record_recv)                                                                                 \
    X(record_send)                                                                                 \
    X(session_set_ptr)                                                                             \
    X(transport_set_int2)

#define X(name)                                                                                    \
    long gnutls_##name(void);                                                                      \
    long gnutls_##name(void)                                                                       \
    {                                                                                              \
        return -1;                                                                                 \
    }
TLS_MAP(X)
#undef X

/* Called when the server library is loaded and unloaded. */
int gnutls_global_init(void);
int gnutls_global_init(void)
{
    return 0;
}

void gnutls_global_deinit(void);
void gnutls_global_deinit(void)
{
}

void *gnutls_session_get_ptr(void *session);
void *gnutls_session_get_ptr(void *session)
{
    (void)session;
    return NULL;
}

const char *gnutls_strerror(int code);
const char *gnutls_strerror(int code)
{
    (void)code;
    return "this program has no TLS";
}

/* A variable of the library: what it allocates with. */
extern void *(*gnutls_malloc)(size_t);
void *(*gnutls_malloc)(size_t) = NULL;
