/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recorder's file holds, as JSON: recorder_dump FILE. Events are taken out of the ring.
 */

#include <plimsoll/shm.h>

#include <stdio.h>

#define N 4096

typedef unsigned long long big;

static struct plim_gpu_event events[N];

static void put_event(const struct plim_shm_reader *r, const struct plim_gpu_event *e,
                      const char *comma)
{
    char call[128] = "", path[512] = "";
    struct plim_shm_library library;
    uint64_t frames[64];
    (void)plim_shm_call(r, e->call, call, sizeof call);
    (void)plim_shm_library(r, e->library, &library, path, sizeof path);
    int n = e->stack == 0 ? 0 : plim_shm_stack(r, e->stack, frames, 64);
    printf("%s\n{\"seq\": %llu, \"kind\": \"%s\", \"call\": \"%s\", \"owner\": \"%s\", "
           "\"library\": \"%s\", "
           "\"addr\": %llu, \"size\": %llu, \"aux\": %llu, \"result\": %d, \"device\": %u, "
           "\"flags\": %u, \"thread\": %u, \"frames\": %d, \"time_ns\": %llu, \"charge\": %lld}",
           comma, (big)e->seq, plim_event_kind_text(e->kind), call, plim_owner_text(e->owner), path,
           (big)e->addr, (big)e->size, (big)e->aux, e->result, e->device, e->flags, e->thread, n,
           (big)e->time_ns, (long long)plim_event_charge(e));
}

static void put_totals(const struct plim_shm_reader *r)
{
    const char *comma = "";
    printf("], \"totals\": [");
    for (unsigned d = 0; d < PLIM_SHM_DEVICES; d++) {
        struct plim_shm_total t[PLIM_SHM_OWNERS];
        if (plim_shm_totals(r, d, t) != 0) {
            continue;
        }
        for (unsigned o = 0; o < PLIM_SHM_OWNERS; o++) {
            if (t[o].allocs != 0 || t[o].charged != 0 || t[o].failures != 0 || t[o].foreign != 0) {
                printf("%s\n{\"device\": %u, \"owner\": \"%s\", \"live\": %llu, \"charged\": %llu, "
                       "\"peak\": %llu, \"count\": %llu, \"failures\": %llu}",
                       comma, d, plim_owner_text(o), (big)t[o].live, (big)t[o].charged,
                       (big)t[o].peak, (big)t[o].count, (big)t[o].failures);
                comma = ",";
            }
        }
    }
}

int main(int argc, char **argv)
{
    struct plim_shm_reader r;
    struct plim_shm_counters c;
    uint64_t lost;
    const char *comma = "";
    if (argc != 2 || plim_shm_open(&r, argv[1], true) != 0) {
        return 1;
    }
    printf("{\"pid\": %u, \"program\": %u, \"state\": %u, \"parent\": %u, \"events\": [",
           r.head.pid, r.head.program, r.head.state, r.head.parent_pid);
    for (int n; (n = plim_shm_poll(&r, events, N, true)) != 0;) {
        for (int i = 0; i < n; i++) {
            put_event(&r, &events[i], comma);
            comma = ",";
        }
        if (n < 0) {
            return 2;
        }
    }
    put_totals(&r);
    if (plim_shm_counters(&r, &c, &lost) != 0) {
        return 3;
    }
    printf("], \"counters\": {\"events\": %llu, \"unknown_frees\": %llu, \"double_frees\": %llu, "
           "\"wrong_device\": %llu, \"failed_frees\": %llu, \"nested\": %llu, \"unhooked\": %llu, "
           "\"untracked\": %llu, \"stacks_lost\": %llu, \"lost\": %llu}}\n",
           (big)c.events, (big)c.unknown_frees, (big)c.double_frees, (big)c.wrong_device,
           (big)c.failed_frees, (big)c.nested, (big)c.unhooked, (big)c.untracked,
           (big)c.stacks_lost, (big)lost);
    return 0;
}
