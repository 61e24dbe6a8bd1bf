/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_OBSERVE_ENGINE_PROCESS_H
#define PLIM_OBSERVE_ENGINE_PROCESS_H

/*
 * Which process answers at an address, which of its processes use a device, and which known engines run here.
 *
 *   user     a process that uses a device
 *   member   a user, one that a user descends from, or a child of a recognised engine
 *   place    an engine that was recognised by its command line, and the port at which it says its metrics
 *
 * Only members are looked at, so that the cost is that of a few processes, not of the machine. An engine counts
 * as found when its own process, or another member below it, really listens at the port that its command line
 * names, in this network namespace, on loopback or on every address: nobody else is ever asked.
 * Source: proc(5); command lines of vllm, sglang, text-generation-inference, llama.cpp, Triton.
 * Threads: plain data; everything is read anew.
 */

#include "device/sampler.h"
#include "observe/observation.h"

#define PLIM_ENGINE_MEMBERS 512 /* most members that are looked at */
#define PLIM_ENGINE_DEPTH   12  /* generations above a user */

struct plim_engine_member {
    uint32_t pid, ppid; /* ppid 0: no member above it */
    bool user;
    bool here;                  /* it is in this process's network namespace */
    enum plim_engine_kind kind; /* by its command line; UNKNOWN: no engine's */
    uint16_t port;              /* that the command line gives or leaves at its default; 0 none */
};

struct plim_engine_listener {
    uint64_t inode; /* of the socket */
    uint32_t pid;   /* of the member that holds it, 0 none; of several the first in the tree */
    uint16_t port;
    bool v6; /* only there: reached at [::1] */
};

struct plim_engine_tree {
    PLIM_VEC(struct plim_engine_member) members; /* ascending pids */
    PLIM_VEC(struct plim_engine_listener) listeners;
};

void plim_engine_tree_fini(struct plim_engine_tree *tree);

/**
 * plim_engine_tree_read() - look at the processes above these users.
 * @users: [n] pids. @ports: [n_ports] whose listeners are wanted besides those of engines.
 * Errors: PLIM_E_NOMEM. Cost: some files of /proc for each member; descriptors only while a wanted listener is
 * nobody's yet, those of engines first.
 */
PLIM_MUST_USE enum plim_status plim_engine_tree_read(const struct plim_world *world,
                                                     const uint32_t *users, size_t n,
                                                     const uint16_t *ports, size_t n_ports,
                                                     struct plim_engine_tree *out,
                                                     struct plim_err *err);

/** plim_engine_listening() - the member that listens at a port of loopback, or 0. */
uint32_t plim_engine_listening(const struct plim_engine_tree *tree, uint16_t port);

/** plim_engine_launcher() - the highest recognised engine that a member descends from, itself included; the member
 * when there is none above it. */
uint32_t plim_engine_launcher(const struct plim_engine_tree *tree, uint32_t pid);

/** plim_engine_workers() - the users among a process and its descendants, ascending, at most
 * PLIM_ENGINE_WORKERS of them. Returns their number. */
uint32_t plim_engine_workers(const struct plim_engine_tree *tree, uint32_t pid,
                             uint32_t worker[PLIM_ENGINE_WORKERS]);

/** plim_engine_place() - the i-th member that is an engine which can be asked; its listener, or NULL. */
const struct plim_engine_listener *plim_engine_place(const struct plim_engine_tree *tree,
                                                     const struct plim_engine_member *member);

/**
 * plim_engine_command() - what engine a command line starts.
 * @command: arguments, each with a NUL behind it. @port: where it says its metrics.
 * Returns UNKNOWN, with port 0, for everything else.
 */
enum plim_engine_kind plim_engine_command(struct plim_str command, uint16_t *port);

#endif
