/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: from "HOST:PORT", ":PORT", "PORT" or "unix:PATH" to a socket that listens. */

#include "http/http_int.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096

struct parsed {
    char host[NI_MAXHOST]; /* "": all addresses */
    char port[8];
};

/* Split at the last colon outside brackets; a port alone is on the loopback address. */
static bool split(const char *address, struct parsed *out)
{
    const char *colon = strrchr(address, ':'), *bracket = strrchr(address, ']');
    const char *port = colon && (!bracket || colon > bracket) ? colon + 1 : address;
    size_t n = port > address ? (size_t)(port - address) - 1 : 0;
    const char *host = address;
    uint64_t number;
    if (bracket && port == address) {
        return false; /* "[::1]" without a port */
    }
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    } else if (memchr(host, ':', n)) {
        return false; /* IPv6 needs its brackets */
    }
    if (port == address) {
        host = "127.0.0.1";
        n = strlen(host);
    }
    if (n >= sizeof(out->host) || strlen(port) >= sizeof(out->port) ||
        !plim_http_number(plim_str_from(port), &number) || number > UINT16_MAX) {
        return false;
    }
    memcpy(out->host, host, n);
    out->host[n] = '\0';
    (void)snprintf(out->port, sizeof(out->port), "%s", port);
    return true;
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, a, sizeof(v4));
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    }
    struct sockaddr_in6 v6;
    memcpy(&v6, a, sizeof(v6));
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

/* A socket that is bound to `a` and listens, or -1 with errno. */
static int open_socket(const struct sockaddr *a, socklen_t n, mode_t unix_mode)
{
    int one = 1, zero = 0;
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    if (a->sa_family != AF_UNIX) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    } else {
        (void)fchmod(fd, unix_mode); /* the file has this mode from the first moment */
    }
    if (a->sa_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    }
    if (bind(fd, a, n) != 0 || listen(fd, BACKLOG) != 0) {
        int e = errno;
        (void)close(fd);
        errno = e;
        return -1;
    }
    return fd;
}

static void name_url(struct plim__listener *l, const struct parsed *p)
{
    struct sockaddr_storage bound;
    socklen_t n = sizeof(bound);
    char port[8], host[NI_MAXHOST];
    (void)snprintf(port, sizeof(port), "%s", p->port);
    if (getsockname(l->fd, (struct sockaddr *)&bound, &n) == 0) {
        (void)getnameinfo((struct sockaddr *)&bound, n, NULL, 0, port, sizeof(port),
                          NI_NUMERICSERV);
    }
    (void)snprintf(host, sizeof(host), "%s", p->host);
    if (!host[0] && gethostname(host, sizeof(host) - 1) != 0) {
        (void)snprintf(host, sizeof(host), "localhost");
    }
    bool v6 = strchr(host, ':') != NULL;
    (void)snprintf(l->url, sizeof(l->url), "http%s://%s%.100s%s:%s/", l->tls ? "s" : "",
                   v6 ? "[" : "", host, v6 ? "]" : "", port);
}

static enum plim_status listen_tcp(const char *address, struct plim__listener *l,
                                   struct plim_err *err)
{
    struct parsed p;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    if (!split(address, &p)) {
        plim__err_set(err, PLIM_E_USAGE, "'%.100s' is no address to listen on", address);
        plim__err_hint(err, "HOST:PORT, [IPv6]:PORT, :PORT for all, PORT for loopback, unix:PATH");
        return PLIM_E_USAGE;
    }
    int e = getaddrinfo(p.host[0] ? p.host : "::", p.port, &hints, &list);
    if (e != 0) {
        return plim__fail(err, PLIM_E_USAGE, "no such address: %.100s (%s)", address,
                          gai_strerror(e));
    }
    l->reach = is_loopback(list->ai_addr) ? PLIM__LOOPBACK : PLIM__NETWORK;
    l->fd = open_socket(list->ai_addr, list->ai_addrlen, 0);
    if (l->fd < 0 && !p.host[0]) { /* a machine without IPv6 */
        uint64_t port = 0;
        (void)plim_http_number(plim_str_from(p.port), &port);
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        l->fd = open_socket((struct sockaddr *)&any, sizeof(any), 0);
    }
    int os_errno = errno;
    freeaddrinfo(list);
    if (l->fd < 0) {
        plim__err_set_errno(err, PLIM_E_OS, os_errno, "cannot listen on %.100s", address);
        plim__err_hint(err, "another program may have the port; port 0 takes a free one");
        return PLIM_E_OS;
    }
    name_url(l, &p);
    return PLIM_OK;
}

/* Whether the file is a socket that was left over: nobody answers. Connecting to any other file is refused as well. */
static bool is_leftover(const struct sockaddr_un *a)
{
    struct stat st;
    if (lstat(a->sun_path, &st) != 0 || !S_ISSOCK(st.st_mode)) {
        return false;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    bool refused =
        connect(fd, (const struct sockaddr *)a, sizeof(*a)) != 0 && errno == ECONNREFUSED;
    (void)close(fd);
    return refused;
}

static enum plim_status listen_unix(const char *path, mode_t mode, struct plim__listener *l,
                                    struct plim_err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof(a.sun_path)) {
        return plim__fail(err, PLIM_E_USAGE, "a Unix socket's path has 1 to %zu characters",
                          sizeof(a.sun_path) - 1);
    }
    memcpy(a.sun_path, path, strlen(path) + 1);
    if (is_leftover(&a)) {
        (void)unlink(path);
    }
    l->reach = PLIM__UNIX;
    l->tls = false;
    l->fd = open_socket((struct sockaddr *)&a, sizeof(a), mode);
    if (l->fd < 0) {
        int os_errno = errno;
        plim__err_set_errno(err, PLIM_E_OS, os_errno, "cannot listen on %s", path);
        plim__err_hint(err, os_errno == EADDRINUSE
                                ? "a program listens there, or it is a file of another kind"
                                : "its folder must be there, and writable for this user");
        return PLIM_E_OS;
    }
    (void)chmod(path, mode);
    (void)snprintf(l->path, sizeof(l->path), "%s", path);
    (void)snprintf(l->url, sizeof(l->url), "unix:%s", path);
    return PLIM_OK;
}

enum plim_status plim__listen(struct plim_http *http, const char *address,
                              struct plim__listener *out, struct plim_err *err)
{
    struct plim__listener l = {.http = http, .fd = -1, .tls = http->secrets.certificate.n > 0};
    struct plim_str text = plim_str_from(address);
    PLIM_TRY(plim_str_starts(text, PLIM_STR("unix:"))
                 ? listen_unix(address + 5, http->options.unix_mode, &l, err)
                 : listen_tcp(address, &l, err));
    *out = l;
    return PLIM_OK;
}

void plim__unlisten(struct plim__listener *listener)
{
    if (listener->fd >= 0) {
        (void)close(listener->fd);
        listener->fd = -1;
    }
    if (listener->path[0]) {
        (void)unlink(listener->path);
    }
}
