/* SPDX-License-Identifier: Apache-2.0 */

/* Engines among processes: command lines, sockets, and who descends from whom. */

#include "observe/engine_process.h"

#include "base/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* ---- command lines ---- */

/* X(kind, a word of the command line, the word behind it or "", option of the port, default): a word matches an
 * argument whole, or the file name that its path ends with. */
#define COMMAND_MAP(X)                                                                             \
    X(VLLM, "vllm", "serve", "--port", 8000)                                                       \
    X(VLLM, "vllm.entrypoints.openai.api_server", "", "--port", 8000)                              \
    X(SGLANG, "sglang.launch_server", "", "--port", 30000)                                         \
    X(SGLANG, "sglang", "serve", "--port", 30000)                                                  \
    X(TGI, "text-generation-launcher", "", "--port", 3000)                                         \
    X(TGI, "text-generation-router", "", "--port", 3000)                                           \
    X(LLAMACPP, "llama-server", "", "--port", 8080)                                                \
    X(TRITON, "tritonserver", "", "--metrics-port", 8002)

/* The next argument. */
static bool next_argument(struct plim_str *rest, struct plim_str *out)
{
    if (rest->n == 0) {
        return false;
    }
    const char *nul = memchr(rest->p, '\0', rest->n);
    out->p = rest->p;
    out->n = nul ? (size_t)(nul - rest->p) : rest->n;
    *rest = plim_str_skip(*rest, out->n + 1);
    return true;
}

static struct plim_str file_name(struct plim_str path)
{
    for (size_t i = path.n; i > 0; i--) {
        if (path.p[i - 1] == '/') {
            return plim_str_skip(path, i);
        }
    }
    return path;
}

static uint16_t port_number(struct plim_str text)
{
    unsigned port = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9' || port > UINT16_MAX) {
            return 0;
        }
        port = port * 10 + (unsigned)(text.p[i] - '0');
    }
    return port <= UINT16_MAX ? (uint16_t)port : 0;
}

/* The argument of an option, "--port 1" or "--port=1"; the last one counts. */
static uint16_t port_option(struct plim_str command, struct plim_str option, uint16_t initial)
{
    struct plim_str argument;
    uint16_t port = initial;
    while (next_argument(&command, &argument)) {
        struct plim_str value = {"", 0};
        if (plim_str_eq(argument, option) && next_argument(&command, &value)) {
            port = port_number(value);
        } else if (plim_str_starts(argument, option) && argument.n > option.n &&
                   argument.p[option.n] == '=') {
            port = port_number(plim_str_skip(argument, option.n + 1));
        }
    }
    return port;
}

/* Whether `word`, and `behind` after it, are among the first arguments: the interpreter and its -m may stand
 * before the program, its own arguments hold anything. */
static bool starts_program(struct plim_str command, struct plim_str word, struct plim_str behind)
{
    struct plim_str argument;
    for (int i = 0; i < 4 && next_argument(&command, &argument); i++) {
        if (plim_str_eq(file_name(argument), word)) {
            struct plim_str rest = command;
            return behind.n == 0 ||
                   (next_argument(&rest, &argument) && plim_str_eq(argument, behind));
        }
    }
    return false;
}

enum plim_engine_kind plim_engine_command(struct plim_str command, uint16_t *port)
{
#define TRY(kind, word, behind, option, initial)                                                   \
    if (starts_program(command, PLIM_STR(word), PLIM_STR(behind))) {                               \
        *port = port_option(command, PLIM_STR(option), initial);                                   \
        return PLIM_ENGINE_KIND_##kind;                                                            \
    }
    COMMAND_MAP(TRY)
#undef TRY
    *port = 0;
    return PLIM_ENGINE_KIND_UNKNOWN;
}

/* ---- processes ---- */

static void world_path(char *out, size_t size, const struct plim_world *world, uint32_t pid,
                       const char *name)
{
    (void)snprintf(out, size, "%s/proc/%u/%s", world->root, pid, name);
}

static struct plim_engine_member *find(const struct plim_engine_tree *tree, uint32_t pid)
{
    plim_vec_foreach (m, &tree->members) {
        if (m->pid == pid) {
            return m;
        }
    }
    return NULL;
}

/* The member above a process, or 0. */
static uint32_t parent(const struct plim_engine_tree *tree, uint32_t pid)
{
    const struct plim_engine_member *m = find(tree, pid);
    return m != NULL ? m->ppid : 0;
}

static void read_command(const struct plim_world *world, struct plim_engine_member *m)
{
    char path[4096], text[16384];
    world_path(path, sizeof(path), world, m->pid, "cmdline");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text)) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (n > 0) {
        m->kind = plim_engine_command((struct plim_str){text, (size_t)n}, &m->port);
    }
}

/* The network namespace: "net:[4026531840]". */
static bool read_namespace(const struct plim_world *world, const char *who, char out[64])
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/proc/%s/ns/net", world->root, who);
    ssize_t n = readlink(path, out, 63);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool is_here(const struct plim_world *world, uint32_t pid)
{
    char own[64], other[64], who[16];
    (void)snprintf(who, sizeof(who), "%u", pid);
    return read_namespace(world, "self", own) && read_namespace(world, who, other) &&
           strcmp(own, other) == 0;
}

static enum plim_status add_member(const struct plim_world *world, struct plim_engine_tree *tree,
                                   uint32_t pid, uint32_t ppid, bool user, struct plim_err *err)
{
    struct plim_engine_member m = {
        .pid = pid, .ppid = ppid, .user = user, .here = is_here(world, pid)};
    read_command(world, &m);
    return plim_vec_push(&tree->members, err, m);
}

/* A user and those above it, as far as they can be seen. init and kernel threads are nobody's engine. */
static enum plim_status add_user(const struct plim_world *world, struct plim_engine_tree *tree,
                                 uint32_t pid, struct plim_err *err)
{
    bool user = true;
    for (int depth = 0; depth < PLIM_ENGINE_DEPTH && pid > 1; depth++) {
        struct plim_engine_member *known = find(tree, pid);
        struct plim_process_facts facts;
        if (known != NULL) {
            known->user |= user;
            return PLIM_OK;
        }
        if (tree->members.n == PLIM_ENGINE_MEMBERS || !plim_process_read(world, pid, &facts)) {
            return PLIM_OK;
        }
        PLIM_TRY(add_member(world, tree, pid, facts.ppid, user, err));
        pid = facts.ppid;
        user = false;
    }
    return PLIM_OK;
}

/* The children of a launcher: the process that answers may be no ancestor of those that use a device (TGI's router
 * is a brother of its shards). */
static enum plim_status add_children(const struct plim_world *world, struct plim_engine_tree *tree,
                                     uint32_t pid, struct plim_err *err)
{
    char path[64], text[PLIM_WORLD_TEXT];
    (void)snprintf(path, sizeof(path), "/proc/%u/task/%u/children", pid, pid);
    if (!plim_world_read(world, path, text)) {
        return PLIM_OK;
    }
    char *end = NULL;
    for (char *p = text;; p = end) {
        uint32_t child = (uint32_t)strtoul(p, &end, 10);
        if (end == p || tree->members.n == PLIM_ENGINE_MEMBERS) {
            return PLIM_OK;
        }
        if (find(tree, child) == NULL) {
            PLIM_TRY(add_member(world, tree, child, pid, false, err));
        }
    }
}

static int by_pid(const void *a, const void *b)
{
    uint32_t left = ((const struct plim_engine_member *)a)->pid;
    uint32_t right = ((const struct plim_engine_member *)b)->pid;
    return (left > right) - (left < right);
}

/* ---- sockets ---- */

/* One line of /proc/net/tcp or tcp6: local address in groups of eight digits of little-endian words. Only
 * listeners on loopback or on every address are kept. */
static enum plim_status take_socket(struct plim_engine_tree *tree, const char *line, bool v6,
                                    struct plim_err *err)
{
    char address[33];
    unsigned port = 0, state = 0;
    unsigned long long inode = 0;
    int fields = sscanf(line, // NOLINT(cert-err34-c): the kernel's numbers
                        " %*d: %32[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %llu",
                        address, &port, &state, &inode);
    if (fields != 4 || state != 0x0a || port > UINT16_MAX) {
        return PLIM_OK;
    }
    bool any = strspn(address, "0") == strlen(address);
    bool loopback = v6 ? strcmp(address, "00000000000000000000000001000000") == 0
                       : strlen(address) == 8 && strcmp(address + 6, "7F") == 0;
    if (!any && !loopback) {
        return PLIM_OK;
    }
    /* A socket for every IPv6 address usually takes IPv4 too. */
    struct plim_engine_listener l = {.inode = inode, .port = (uint16_t)port, .v6 = v6 && !any};
    return plim_vec_push(&tree->listeners, err, l);
}

static enum plim_status read_sockets(const struct plim_world *world, const char *name, bool v6,
                                     struct plim_engine_tree *tree, struct plim_err *err)
{
    char path[4096], line[512];
    (void)snprintf(path, sizeof(path), "%s/proc/self/net/%s", world->root, name);
    FILE *f = fopen(path, "re");
    enum plim_status st = PLIM_OK;
    while (f != NULL && st == PLIM_OK && fgets(line, sizeof(line), f) != NULL) {
        st = take_socket(tree, line, v6, err);
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return st;
}

/* Which of the listening sockets this process holds: descriptors are links to "socket:[INODE]". */
static void take_descriptors(const struct plim_world *world, const struct plim_engine_member *m,
                             struct plim_engine_tree *tree)
{
    char path[4096];
    world_path(path, sizeof(path), world, m->pid, "fd");
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        char target[64];
        unsigned long long inode = 0;
        ssize_t n = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        if (sscanf(target, "socket:[%llu]", &inode) != 1) { // NOLINT(cert-err34-c): the kernel's
            continue;
        }
        plim_vec_foreach (l, &tree->listeners) {
            if (l->inode == inode && (l->pid == 0 || parent(tree, l->pid) == m->pid)) {
                l->pid = m->pid; /* of a parent and the child that inherited it, the parent */
            }
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
}

void plim_engine_tree_fini(struct plim_engine_tree *tree)
{
    plim_vec_fini(&tree->members);
    plim_vec_fini(&tree->listeners);
}

/* Only listeners at these ports, or at that of an engine, are of any use. */
static void keep_wanted(struct plim_engine_tree *tree, const uint16_t *ports, size_t n_ports)
{
    size_t kept = 0;
    plim_vec_foreach (l, &tree->listeners) {
        bool wanted = false;
        for (size_t i = 0; i < n_ports; i++) {
            wanted |= ports[i] == l->port;
        }
        plim_vec_foreach (m, &tree->members) {
            wanted |= m->port == l->port;
        }
        if (wanted) {
            tree->listeners.items[kept++] = *l;
        }
    }
    tree->listeners.n = kept;
}

static bool is_anybodys(const struct plim_engine_tree *tree)
{
    plim_vec_foreach (l, &tree->listeners) {
        if (l->pid == 0) {
            return false;
        }
    }
    return true;
}

/* Who holds the listeners: engines and their children first, then the others as long as one is nobody's. */
static void find_holders(const struct plim_world *world, struct plim_engine_tree *tree)
{
    for (int others = 0; others < 2; others++) {
        plim_vec_foreach (m, &tree->members) {
            const struct plim_engine_member *above = find(tree, m->ppid);
            bool known = m->kind != PLIM_ENGINE_KIND_UNKNOWN ||
                         (above != NULL && above->kind != PLIM_ENGINE_KIND_UNKNOWN);
            if (m->here && known != (others != 0) && !(others != 0 && is_anybodys(tree))) {
                take_descriptors(world, m, tree);
            }
        }
    }
}

static enum plim_status read_members(const struct plim_world *world, const uint32_t *users,
                                     size_t n, struct plim_engine_tree *out, struct plim_err *err)
{
    for (size_t i = 0; i < n; i++) {
        PLIM_TRY(add_user(world, out, users[i], err));
    }
    size_t above = out->members.n;
    for (size_t i = 0; i < above; i++) {
        if (out->members.items[i].kind != PLIM_ENGINE_KIND_UNKNOWN) {
            PLIM_TRY(add_children(world, out, out->members.items[i].pid, err));
        }
    }
    return PLIM_OK;
}

enum plim_status plim_engine_tree_read(const struct plim_world *world, const uint32_t *users,
                                       size_t n, const uint16_t *ports, size_t n_ports,
                                       struct plim_engine_tree *out, struct plim_err *err)
{
    out->members.n = out->listeners.n = 0;
    PLIM_TRY(read_members(world, users, n, out, err));
    if (out->members.n == 0) {
        return PLIM_OK;
    }
    qsort(out->members.items, out->members.n, sizeof(out->members.items[0]), by_pid);
    PLIM_TRY(read_sockets(world, "tcp", false, out, err));
    PLIM_TRY(read_sockets(world, "tcp6", true, out, err));
    keep_wanted(out, ports, n_ports);
    if (out->listeners.n > 0) {
        find_holders(world, out);
    }
    return PLIM_OK;
}

uint32_t plim_engine_listening(const struct plim_engine_tree *tree, uint16_t port)
{
    plim_vec_foreach (l, &tree->listeners) {
        if (l->port == port && l->pid != 0) {
            return l->pid;
        }
    }
    return 0;
}

/* Whether `pid` is `above` or descends from it. */
static bool descends(const struct plim_engine_tree *tree, uint32_t pid, uint32_t above)
{
    for (int depth = 0; depth < PLIM_ENGINE_DEPTH && pid != 0; depth++) {
        if (pid == above) {
            return true;
        }
        pid = parent(tree, pid);
    }
    return false;
}

uint32_t plim_engine_launcher(const struct plim_engine_tree *tree, uint32_t pid)
{
    uint32_t highest = pid;
    const struct plim_engine_member *m = find(tree, pid);
    for (int depth = 0; depth < PLIM_ENGINE_DEPTH && m != NULL; depth++) {
        highest = m->kind != PLIM_ENGINE_KIND_UNKNOWN ? m->pid : highest;
        m = find(tree, m->ppid);
    }
    return highest;
}

uint32_t plim_engine_workers(const struct plim_engine_tree *tree, uint32_t pid,
                             uint32_t worker[PLIM_ENGINE_WORKERS])
{
    uint32_t n = 0;
    plim_vec_foreach (m, &tree->members) {
        if (m->user && n < PLIM_ENGINE_WORKERS && descends(tree, m->pid, pid)) {
            worker[n++] = m->pid;
        }
    }
    return n;
}

const struct plim_engine_listener *plim_engine_place(const struct plim_engine_tree *tree,
                                                     const struct plim_engine_member *member)
{
    plim_vec_foreach (l, &tree->listeners) {
        if (member->kind != PLIM_ENGINE_KIND_UNKNOWN && member->port != 0 &&
            l->port == member->port && l->pid != 0 && descends(tree, l->pid, member->pid)) {
            return l;
        }
    }
    return NULL;
}
