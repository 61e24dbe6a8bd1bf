/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of a ledger, for threads and processes of which any may be killed at any instruction.
 *
 * The word names its holder. Who finds it taken spins, yields, then sleeps in short pieces; and looks
 * whether the holder is still there. A dead holder's word is replaced by one's own, and the sums are computed
 * anew from the slots. A holder that lives but does not go on (stopped by a signal or a debugger) costs
 * the others at most 20 ms each; after two seconds it counts as dead too. When it does go on it finds at
 * unlock that the word is no longer its own, and says so: the next one repairs.
 */

#include "ledger.h"

#include "../../shm/process.h"

#include <sched.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SPINS    200
#define YIELDS   20
#define SLEEPS   200 /* of 100 us */
#define SLEEP_NS 100000
#define STUCK_NS UINT64_C(2000000000)

static uint64_t own_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

uint32_t gate__enlist(struct gate *g)
{
    struct gate_process *all = g->head->processes;
    struct gate_process own = {.pid = (uint32_t)getpid(),
                               .start_ticks = plim__shm_start_ticks(0, NULL),
                               .namespace = own_namespace()};
    uint32_t chosen = GATE_NONE;
    for (uint32_t i = 0; i < GATE_PROCESSES; i++) {
        const struct gate_process *p = &all[i];
        if (p->pid == own.pid && p->start_ticks == own.start_ticks &&
            p->namespace == own.namespace) {
            all[i].handles++;
            return i;
        }
        if (p->pid == 0 && p->live == 0 && chosen == GATE_NONE) {
            chosen = i;
        }
    }
    if (chosen != GATE_NONE) {
        own.handles = 1;
        all[chosen] = own;
    }
    return chosen;
}

bool gate__gone(const struct gate_process *p)
{
    if (p->pid == 0 || p->pid == (uint32_t)getpid() || p->start_ticks == 0 || p->namespace == 0 ||
        p->namespace != own_namespace()) {
        return false; /* not known: leases end what it holds */
    }
    bool zombie = false;
    return plim__shm_start_ticks(p->pid, &zombie) != p->start_ticks || zombie;
}

static bool holder_gone(const struct gate *g, uint64_t word)
{
    uint64_t holder = (word & 0xffff) - 1;
    return holder >= GATE_PROCESSES || gate__gone(&g->head->processes[holder]);
}

static bool swap(struct gate_head *head, uint64_t from, uint64_t to)
{
    return __atomic_compare_exchange_n(&head->lock, &from, to, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

/* Whether this word has been there for so long that its holder counts as dead. */
static bool stuck(struct gate_head *head, uint64_t word, uint64_t now_ns)
{
    if (__atomic_load_n(&head->stuck_word, __ATOMIC_ACQUIRE) != word) {
        __atomic_store_n(&head->stuck_ns, now_ns, __ATOMIC_RELAXED);
        __atomic_store_n(&head->stuck_word, word, __ATOMIC_RELEASE);
        return false;
    }
    uint64_t since = __atomic_load_n(&head->stuck_ns, __ATOMIC_RELAXED);
    return now_ns > since && now_ns - since > STUCK_NS;
}

static void pause_a_little(unsigned round)
{
    if (round < SPINS) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    } else if (round < SPINS + YIELDS) {
        (void)sched_yield();
    } else {
        struct timespec t = {.tv_nsec = SLEEP_NS};
        (void)nanosleep(&t, NULL);
    }
}

/* The word of a holder that died, replaced by `own`; or false after a while. */
static bool wait_for(struct gate *g, uint64_t own, uint64_t now_ns, bool *repair)
{
    struct gate_head *head = g->head;
    for (unsigned round = 0; round < SPINS + YIELDS + SLEEPS; round++) {
        uint64_t word = __atomic_load_n(&head->lock, __ATOMIC_RELAXED);
        if (word == 0 && swap(head, 0, own)) {
            return true;
        }
        bool look = round >= SPINS + YIELDS && (round - SPINS - YIELDS) % 16 == 0;
        if (word != 0 && look && holder_gone(g, word) && swap(head, word, own)) {
            *repair = true;
            return true;
        }
        pause_a_little(round);
    }
    uint64_t word = __atomic_load_n(&head->lock, __ATOMIC_RELAXED);
    if (word != 0 && stuck(head, word, now_ns) && swap(head, word, own)) {
        *repair = true;
        return true;
    }
    return false;
}

uint64_t gate__lock(struct gate *g, uint64_t now_ns)
{
    struct gate_head *head = g->head;
    uint64_t count = __atomic_add_fetch(&head->count, 1, __ATOMIC_RELAXED);
    uint64_t own = count << 16 | (g->process + 1);
    bool repair = false;
    if (!swap(head, 0, own) && !wait_for(g, own, now_ns, &repair)) {
        return 0;
    }
    if (now_ns > head->now_ns) {
        head->now_ns = now_ns;
    }
    if (repair || __atomic_load_n(&head->suspect, __ATOMIC_RELAXED) != 0) {
        __atomic_store_n(&head->suspect, 0, __ATOMIC_RELAXED);
        gate__repair(g);
    }
    return own;
}

void gate__unlock(struct gate *g, uint64_t word)
{
    if (!__atomic_compare_exchange_n(&g->head->lock, &word, 0, false, __ATOMIC_RELEASE,
                                     __ATOMIC_RELAXED)) {
        __atomic_store_n(&g->head->suspect, 1, __ATOMIC_RELEASE);
    }
}
