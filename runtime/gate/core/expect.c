/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long answers get, learned by class: the product-limit estimate (Kaplan and Meier, 1958) on bins that
 * grow with the length. Of the requests that came to a bin, a share ended in it; the rest went on or left for
 * another reason (their client, max_tokens), and is not taken for ended. Observations lose weight: an old
 * one counts half after about 1,400 newer ones. A class borrows 16 requests from everybody's experience,
 * and everybody 16 from a guess: lengths about a mean, with a long tail. The guess gives the curve a shape; it is no
 * experience, and what the curve rests on does not count it.
 * Bounded: 2.5 KiB a class. Cost: O(bins) to learn, O(1) to ask.
 */

#include "ledger.h"

#define BORROWED   16.0
#define FORGETTING (1 + 1.0 / 2000)
#define WEIGHT_MAX 1e6

static unsigned bin_of(uint64_t length)
{
    if (length < 8) {
        return (unsigned)length;
    }
    if (length >= UINT64_C(1) << 18) {
        return GATE_BINS - 1;
    }
    unsigned e = 63u - (unsigned)__builtin_clzll(length);
    return 8 + (e - 3) * 8 + (unsigned)((length >> (e - 3)) & 7);
}

static uint32_t bin_width(unsigned bin)
{
    return bin < 8 ? 1 : 1u << ((bin - 8) / 8);
}

static uint32_t bin_low(unsigned bin)
{
    return bin < 8 ? bin : (8 + (bin - 8) % 8) << ((bin - 8) / 8);
}

/* Share of those that come to the bin that end in it, when the rate of ending is 1 / (mean + length):
 * a tail as heavy as real traffic has. Nobody ends with no token. */
static double guess(unsigned bin, double mean)
{
    double width = bin_width(bin);
    return bin == 0 ? 0 : width / (width + mean + 0.25 * bin_low(bin));
}

static double ends_in(const struct gate_lengths *l, unsigned bin)
{
    double here = l->survival[bin];
    double next = bin + 1 < GATE_BINS ? l->survival[bin + 1] : 0;
    return here > 1e-9 ? gate__clamp(1 - next / here, 0, 1) : 1;
}

/* How many came to each bin, and left before it for another reason. */
static void count(struct gate_lengths *l)
{
    double one = l->weight > 0 ? 1 / l->weight : 1;
    double came = 0;
    double lost = 0;
    for (unsigned b = GATE_BINS; b-- > 0;) {
        came += ((double)l->ended[b] + l->left[b]) * one;
        l->came[b] = (float)came;
    }
    for (unsigned b = 0; b < GATE_BINS; b++) {
        l->lost[b] = (float)lost;
        lost += l->left[b] * one;
    }
}

/* Of the answers of others, a class's own among them, so many that they count as BORROWED. */
static void borrow(struct gate_lengths *l, const struct gate_lengths *all)
{
    double others = gate__clamp((double)all->came[0] - l->came[0], 0, WEIGHT_MAX);
    double part = others > BORROWED ? BORROWED / others : 1;
    for (unsigned b = 0; b < GATE_BINS; b++) {
        l->came[b] += (float)(part * gate__clamp((double)all->came[b] - l->came[b], 0, WEIGHT_MAX));
        l->lost[b] += (float)(part * gate__clamp((double)all->lost[b] - l->lost[b], 0, WEIGHT_MAX));
    }
}

static void refresh(struct gate_lengths *l, const struct gate_lengths *all, double mean)
{
    double scale = l->weight > 0 ? l->weight : 1;
    double alive = 1;
    count(l);
    for (unsigned b = 0; b < GATE_BINS; b++) {
        double prior = all ? ends_in(all, b) : guess(b, mean);
        double ended = l->ended[b] / scale + BORROWED * prior;
        double came = l->came[b] + BORROWED;
        l->survival[b] = (float)alive;
        alive *= gate__clamp(1 - ended / came, 0, 1);
    }
    if (all) {
        borrow(l, all);
    }
}

void gate__lengths_init(struct gate_lengths *l, const struct gate_lengths *all, double mean)
{
    *l = (struct gate_lengths){.weight = 1};
    refresh(l, all, mean);
}

void gate__lengths_learn(struct gate_lengths *l, const struct gate_lengths *all, double mean,
                         uint32_t length, bool ended)
{
    unsigned bin = bin_of(length);
    float weight = (float)gate__clamp(l->weight, 1, WEIGHT_MAX);
    *(ended ? &l->ended[bin] : &l->left[bin]) += weight;
    l->weight = (double)weight * FORGETTING;
    if (l->weight > WEIGHT_MAX / 2) {
        for (unsigned b = 0; b < GATE_BINS; b++) {
            l->ended[b] /= (float)l->weight;
            l->left[b] /= (float)l->weight;
        }
        l->weight = 1;
    }
    if (++l->n < 64 || l->n % 4 == 0) {
        refresh(l, all, mean);
    }
}

double gate__lengths_seen(const struct gate_lengths *l, uint64_t from, uint64_t to)
{
    unsigned first = bin_of(from);
    double left = (double)l->lost[bin_of(to)] - l->lost[first];
    return gate__clamp(l->came[first] - left, 0, WEIGHT_MAX);
}

double gate__lengths_alive(const struct gate_lengths *l, uint64_t length)
{
    unsigned bin = bin_of(length);
    double here = l->survival[bin];
    double next = bin + 1 < GATE_BINS ? l->survival[bin + 1] : 0;
    double part = (double)(length - bin_low(bin)) / bin_width(bin);
    return gate__clamp(here + (next - here) * gate__clamp(part, 0, 1), 0, 1);
}

uint32_t gate__lengths_at(const struct gate_lengths *l, double below)
{
    unsigned bin = 0;
    while (bin + 1 < GATE_BINS && l->survival[bin + 1] > 1 - below) {
        bin++;
    }
    double here = l->survival[bin];
    double next = bin + 1 < GATE_BINS ? l->survival[bin + 1] : 0;
    double part = here > next ? gate__clamp((here - (1 - below)) / (here - next), 0, 1) : 0;
    return bin_low(bin) + (uint32_t)(part * bin_width(bin));
}

double gate__lengths_mean(const struct gate_lengths *l)
{
    double mean = 0;
    for (unsigned b = 1; b < GATE_BINS; b++) { /* the area under the curve */
        double next = b + 1 < GATE_BINS ? l->survival[b + 1] : 0;
        mean += gate__clamp((l->survival[b] + next) / 2, 0, 1) * bin_width(b);
    }
    return mean;
}
