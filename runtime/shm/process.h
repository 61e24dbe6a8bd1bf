/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SHM_PROCESS_H
#define PLIM_SHM_PROCESS_H

/* Who a process is: pid and start time, which together are never used twice between two boots. */

#include <stdbool.h>
#include <stdint.h>

/**
 * plim__shm_start_ticks() - field 22 of /proc/<pid>/stat: clock ticks since boot.
 * @pid: 0 for the calling process.
 * @dead: nullable; whether the process is a zombie or on its way out.
 * Returns 0 when there is no such process or no /proc. Async-signal-safe; allocates nothing.
 * Source: proc_pid_stat(5).
 */
uint64_t plim__shm_start_ticks(uint32_t pid, bool *dead);

/** plim__shm_put_number() - decimal digits of `value` at `at`, with a NUL; returns where the NUL is.
 * Needs 21 bytes. */
char *plim__shm_put_number(char *at, uint64_t value);

/** plim__shm_number() - the decimal number that begins at `at`, of at most 19 digits. Returns what
 * follows it; NULL, and *value 0, when none begins there. */
const char *plim__shm_number(const char *at, uint64_t *value);

/** plim__shm_put_text() - as stpcpy, but never behind `end`, which gets the NUL at the latest. */
char *plim__shm_put_text(char *at, char *end, const char *text);

#endif
