/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of small integers: a bitmap with bitmaps of its non-empty words on top.
 *
 * Level 0 has one bit for each member, level k + 1 one bit for each word of level k that is not
 * zero. Five levels of 64 reach 2^30 members; finding a neighbour touches at most two words of each
 * level. The memory is mapped and costs pages only where members are.
 */

#include "sim.h"
#include <sys/mman.h>

int sim_bits_init(struct sim_bits *bits, uint64_t size)
{
    uint64_t n = size;
    bits->size = size;
    for (int k = 0; k < SIM_BITS_LEVELS; k++) {
        n = (n + 63) / 64;
        void *words = mmap(NULL, n * 8, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (words == MAP_FAILED) {
            return SIM_E_NOMEM;
        }
        bits->level[k] = words;
    }
    return n == 1 ? SIM_OK : SIM_E_VALUE;
}

void sim_bits_set(struct sim_bits *bits, uint64_t i)
{
    for (int k = 0; k < SIM_BITS_LEVELS; k++) {
        uint64_t *word = &bits->level[k][i / 64];
        bool was = *word != 0;
        *word |= (uint64_t)1 << (i % 64);
        if (was) {
            return;
        }
        i /= 64;
    }
}

void sim_bits_clear(struct sim_bits *bits, uint64_t i)
{
    for (int k = 0; k < SIM_BITS_LEVELS; k++) {
        uint64_t *word = &bits->level[k][i / 64];
        *word &= ~((uint64_t)1 << (i % 64));
        if (*word != 0) {
            return;
        }
        i /= 64;
    }
}

uint64_t sim_bits_prev(const struct sim_bits *bits, uint64_t i)
{
    if (i >= bits->size) {
        i = bits->size - 1;
    }
    for (int k = 0; k < SIM_BITS_LEVELS; k++) {
        uint64_t word = bits->level[k][i / 64] & (UINT64_MAX >> (63 - i % 64));
        if (word != 0) {
            i = (i & ~(uint64_t)63) + 63 - (uint64_t)__builtin_clzll(word);
            while (k-- > 0) {
                i = i * 64 + 63 - (uint64_t)__builtin_clzll(bits->level[k][i]);
            }
            return i;
        }
        if (i / 64 == 0) {
            return SIM_NONE;
        }
        i = i / 64 - 1; /* words before this one, one level up */
    }
    return SIM_NONE;
}

uint64_t sim_bits_next(const struct sim_bits *bits, uint64_t i)
{
    uint64_t words = (bits->size + 63) / 64;
    for (int k = 0; k < SIM_BITS_LEVELS; k++) {
        if (i / 64 >= words) {
            return SIM_NONE;
        }
        uint64_t word = bits->level[k][i / 64] & (UINT64_MAX << (i % 64));
        if (word != 0) {
            i = (i & ~(uint64_t)63) + (uint64_t)__builtin_ctzll(word);
            while (k-- > 0) {
                i = i * 64 + (uint64_t)__builtin_ctzll(bits->level[k][i]);
            }
            return i;
        }
        i = i / 64 + 1;
        words = (words + 63) / 64;
    }
    return SIM_NONE;
}
