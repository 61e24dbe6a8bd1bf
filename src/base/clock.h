/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_CLOCK_H
#define PLIM_BASE_CLOCK_H

/*
 * The clocks, in nanoseconds, and waiting for a condition by one of them.
 *
 *   mono   for spans of time: it does not step when the time of day is set; it stands still in suspend
 *   boot   the same, and goes on in suspend
 *   wall   since 1970, for people: it may step
 *
 * Threads: any.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define PLIM_SECOND_NS UINT64_C(1000000000)

/** plim_clock_ns() - a clock of the system. Cost: 20 ns, no system call. */
static inline uint64_t plim_clock_ns(clockid_t clock)
{
    struct timespec t = {0};
    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * PLIM_SECOND_NS + (uint64_t)t.tv_nsec;
}

static inline uint64_t plim_mono_ns(void)
{
    return plim_clock_ns(CLOCK_MONOTONIC);
}

static inline uint64_t plim_boot_ns(void)
{
    return plim_clock_ns(CLOCK_BOOTTIME);
}

static inline uint64_t plim_wall_ns(void)
{
    return plim_clock_ns(CLOCK_REALTIME);
}

static inline struct timespec plim_timespec(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / PLIM_SECOND_NS), (long)(ns % PLIM_SECOND_NS)};
}

/** plim_cond_init() - a condition for plim_cond_wait_until(). */
static inline void plim_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(cond, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

/** plim_cond_wait_until() - wait for a signal until plim_mono_ns() is `mono_ns`; false: that was so. As with any
 * condition, it may return true without one. */
static inline bool plim_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock,
                                        uint64_t mono_ns)
{
    struct timespec until = plim_timespec(mono_ns);
    return pthread_cond_timedwait(cond, lock, &until) == 0;
}

#endif
