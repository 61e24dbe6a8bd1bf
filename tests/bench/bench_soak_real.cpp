// SPDX-License-Identifier: Apache-2.0
//
// Plays a stream of allocations and frees, as bench_soak writes it, to PyTorch's own allocator on the simulated
// device, and prints processor nanoseconds for each allocation with its free. Compiled by bench_soak.py.

#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdio>
#include <ctime>
#include <unordered_map>
#include <vector>

namespace c10::cuda::_internal
{
void setHasPrimaryContext(bool (*func)(c10::DeviceIndex));
}

struct Entry {
    uint32_t slot;
    uint64_t bytes; // 0: free
};

// Pieces become slots, so that looking them up is not part of what is timed.
static std::vector<Entry> read_stream(const char *path, size_t *slots)
{
    std::vector<Entry> entries;
    std::unordered_map<uint64_t, uint32_t> slot_of;
    std::vector<uint32_t> unused;
    uint64_t pair[2];
    FILE *file = fopen(path, "rb");
    *slots = 0;
    while (file && fread(pair, sizeof pair, 1, file) == 1) {
        if (pair[1] > 0) {
            uint32_t slot = unused.empty() ? static_cast<uint32_t>((*slots)++) : unused.back();
            if (!unused.empty()) {
                unused.pop_back();
            }
            slot_of[pair[0]] = slot;
            entries.push_back({slot, pair[1]});
        } else {
            uint32_t slot = slot_of.at(pair[0]);
            slot_of.erase(pair[0]);
            unused.push_back(slot);
            entries.push_back({slot, 0});
        }
    }
    return entries;
}

int main(int argc, char **argv)
{
    size_t slots;
    std::vector<Entry> entries = read_stream(argc > 1 ? argv[1] : "", &slots);
    std::vector<void *> pieces(slots);
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
    c10::cuda::CUDACachingAllocator::init(1);
    auto *allocator = c10::cuda::CUDACachingAllocator::get();
    size_t allocs = 0;
    timespec start, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    for (const Entry &e : entries) {
        if (e.bytes > 0) {
            pieces[e.slot] = allocator->raw_alloc_with_stream(e.bytes, nullptr);
            allocs++;
        } else {
            allocator->raw_delete(pieces[e.slot]);
        }
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    double ns = 1e9 * static_cast<double>(end.tv_sec - start.tv_sec) +
                static_cast<double>(end.tv_nsec - start.tv_nsec);
    printf("%.1f %zu\n", allocs ? ns / static_cast<double>(allocs) : 0.0, allocs);
    return entries.empty();
}
