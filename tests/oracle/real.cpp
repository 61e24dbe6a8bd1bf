// SPDX-License-Identifier: Apache-2.0
//
// The real side: PyTorch's allocator itself, through its C++ entry points (libc10_cuda), on the
// simulated device. Compiled by run.py against the headers of the installed wheel.

#include "workload.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/PeerToPeerAccess.h>

#include <plimsoll/simgpu.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <vector>

// Exported by libc10_cuda for libtorch_cuda, which is not needed here, to answer.
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*func)(c10::DeviceIndex));
}

using namespace c10::cuda;
using c10::CachingDeviceAllocator::StatArray;
using c10::CachingDeviceAllocator::TraceEntry;

namespace {

ow_config config;
std::vector<CUDAStream> streams;
std::map<const void *, unsigned> stream_index;
std::map<uint64_t, unsigned> event_stream; // event handle -> stream it was last recorded on
c10::DataPtr blocks[OW_SLOTS];
c10::MempoolId_t pool_ids[OW_POOLS];
uint64_t next_pool = 1;
uint64_t log_at = 0;

decltype(&plimsoll_sim_set) sim_set;
decltype(&plimsoll_sim_advance) sim_advance;
decltype(&plimsoll_sim_log_count) sim_log_count;
decltype(&plimsoll_sim_log_read) sim_log_read;
decltype(&plimsoll_sim_log_clear) sim_log_clear;
decltype(&plimsoll_sim_call_name) sim_call_name;
decltype(&cudaStreamBeginCapture) begin_capture;
decltype(&cudaStreamEndCapture) end_capture;
decltype(&cudaGraphDestroy) graph_destroy;

CUDACachingAllocator::CUDAAllocator *allocator()
{
    return CUDACachingAllocator::get();
}

template <class F> void find(F &out, const char *name)
{
    out = reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
    if (!out) {
        fprintf(stderr, "%s is missing: not on the simulated device\n", name);
        exit(1);
    }
}

unsigned index_of(const void *stream)
{
    auto it = stream_index.find(stream);
    return it == stream_index.end() ? 99 : it->second;
}

unsigned pool_of(const c10::MempoolId_t &id)
{
    for (unsigned i = 0; i < OW_POOLS; i++) {
        if (id != c10::MempoolId_t{0, 0} && id == pool_ids[i]) {
            return i + 1;
        }
    }
    return 0;
}

const std::map<std::string, ow_call> call_names = {
    {"cudaMalloc", OW_CALL_MALLOC},
    {"cudaFree", OW_CALL_FREE},
    {"cudaMemGetInfo", OW_CALL_MEM_GET_INFO},
    {"cuMemAddressReserve", OW_CALL_RESERVE},
    {"cuMemAddressFree", OW_CALL_UNRESERVE},
    {"cuMemCreate", OW_CALL_CREATE},
    {"cuMemRelease", OW_CALL_RELEASE},
    {"cuMemMap", OW_CALL_MAP},
    {"cuMemUnmap", OW_CALL_UNMAP},
    {"cuMemSetAccess", OW_CALL_ACCESS},
    {"cudaStreamSynchronize", OW_CALL_STREAM_SYNC},
    {"cudaEventRecord", OW_CALL_EVENT_RECORD},
    {"cudaEventQuery", OW_CALL_EVENT_QUERY},
    {"cudaEventSynchronize", OW_CALL_EVENT_SYNC},
};

void put_call(const plimsoll_sim_call &c)
{
    static int kinds[256];
    static bool known[256];
    if (!known[c.call]) {
        auto it = call_names.find(sim_call_name(c.call));
        kinds[c.call] = it == call_names.end() ? -1 : it->second;
        known[c.call] = true;
    }
    uint64_t addr = ow_rel(c.addr), size = c.size, last = c.code != 0;
    switch (kinds[c.call]) {
    case -1:
        return;
    case OW_CALL_MEM_GET_INFO:
        addr = 0;
        break;
    case OW_CALL_STREAM_SYNC:
        addr = index_of(reinterpret_cast<const void *>(c.addr));
        break;
    case OW_CALL_EVENT_RECORD:
        addr = event_stream[c.addr] = index_of(reinterpret_cast<const void *>(c.arg));
        break;
    case OW_CALL_EVENT_QUERY:
    case OW_CALL_EVENT_SYNC:
        addr = event_stream[c.addr];
        break;
    default:
        break;
    }
    ow_put(OW_CALL, static_cast<uint64_t>(kinds[c.call]), addr, size, last);
}

// Driver calls since the last time, so that they stand between the events where they happened.
void put_calls()
{
    plimsoll_sim_call some[64];
    uint64_t n;
    while ((n = sim_log_read(log_at, some, 64)) > 0) {
        for (uint64_t i = 0; i < n; i++) {
            put_call(some[i]);
        }
        log_at += n;
    }
    if (log_at > 100000) {
        sim_log_clear();
        log_at = 0;
    }
}

void on_trace(const TraceEntry &e)
{
    if (e.action_ == TraceEntry::SNAPSHOT) {
        return;
    }
    put_calls();
    uint64_t addr = e.action_ == TraceEntry::OOM ? e.addr_ : ow_rel(e.addr_);
    ow_put(OW_EVENT, e.action_, addr, e.size_, index_of(e.stream_) << 16 | pool_of(e.mempool_));
}

void put_stat(const c10::CachingAllocator::Stat &s)
{
    ow_put(OW_STAT, static_cast<uint64_t>(s.current), static_cast<uint64_t>(s.peak),
           static_cast<uint64_t>(s.allocated), static_cast<uint64_t>(s.freed));
}

void put_array(const c10::CachingAllocator::StatArray &a)
{
    using c10::CachingAllocator::StatType;
    for (auto type : {StatType::AGGREGATE, StatType::LARGE_POOL, StatType::SMALL_POOL}) {
        put_stat(a[static_cast<size_t>(type)]);
    }
}

} // namespace

void side_open(const ow_config *c)
{
    config = *c;
    find(sim_set, "plimsoll_sim_set");
    find(sim_advance, "plimsoll_sim_advance");
    find(sim_log_count, "plimsoll_sim_log_count");
    find(sim_log_read, "plimsoll_sim_log_read");
    find(sim_log_clear, "plimsoll_sim_log_clear");
    find(sim_call_name, "plimsoll_sim_call_name");
    find(begin_capture, "cudaStreamBeginCapture");
    find(end_capture, "cudaStreamEndCapture");
    find(graph_destroy, "cudaGraphDestroy");
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
    allocator()->init(1);
    c10::cuda::detail::init_p2p_access_cache(1);
    for (unsigned i = 0; i < config.streams; i++) {
        streams.push_back(i == 0 ? getDefaultCUDAStream() : getStreamFromPool());
        stream_index[streams[i].stream()] = i;
        if (streams[i].id() != ow_stream_id(i)) {
            fprintf(stderr, "stream %u has id %lld, not %lld\n", i,
                    static_cast<long long>(streams[i].id()),
                    static_cast<long long>(ow_stream_id(i)));
            exit(1);
        }
    }
    if (!config.bench) {
        allocator()->attachAllocatorTraceTracker(on_trace);
    }
    if (config.history) {
        allocator()->recordHistory(true, nullptr, 100000, CUDACachingAllocator::RecordContext::NEVER,
                                   true, {});
    }
    log_at = sim_log_count();
}

void side_close()
{
    fflush(stdout);
    _Exit(0); // the allocator outlives main in real programs too
}

bool side_alloc(unsigned slot, uint64_t size, unsigned stream, unsigned pool)
{
    if (config.bench) {
        blocks[slot] = allocator()->allocate(size);
        return true;
    }
    bool fits = true;
    setCurrentCUDAStream(streams[stream]);
    if (pool) {
        allocator()->beginAllocateToPool(0, pool_ids[pool - 1], [](cudaStream_t) { return true; });
    }
    try {
        blocks[slot] = allocator()->allocate(size);
        put_calls();
        ow_put(OW_ALLOC, slot, ow_rel(reinterpret_cast<uint64_t>(blocks[slot].get())), 0, 0);
    } catch (const c10::OutOfMemoryError &e) {
        put_calls();
        ow_put(OW_ALLOC, slot, 0, 0, 0);
        ow_text(e.what_without_backtrace());
        fits = false;
    }
    if (pool) {
        allocator()->endAllocateToPool(0, pool_ids[pool - 1]);
        allocator()->releasePool(0, pool_ids[pool - 1]);
    }
    return fits;
}

void side_free(unsigned slot)
{
    blocks[slot].clear();
    if (!config.bench) {
        put_calls();
    }
}

void side_record(unsigned slot, unsigned stream)
{
    allocator()->recordStream(blocks[slot], streams[stream]);
}

void side_empty(unsigned pool)
{
    allocator()->emptyCache(pool ? pool_ids[pool - 1] : c10::MempoolId_t{0, 0});
    put_calls();
}

void side_fraction(double fraction)
{
    allocator()->setMemoryFraction(fraction, 0);
}

void side_conf(const char *text)
{
    c10::CachingAllocator::setAllocatorSettings(text);
}

void side_advance(uint64_t ticks)
{
    sim_advance(ticks);
}

void side_pool_new(unsigned pool, bool overflow, bool no_split)
{
    pool_ids[pool] = {0, next_pool++};
    allocator()->createOrIncrefPool(0, pool_ids[pool]);
    if (overflow) {
        allocator()->setUseOnOOM(0, pool_ids[pool], true);
    }
    if (no_split) {
        allocator()->setNoSplit(0, pool_ids[pool]);
    }
}

void side_pool_drop(unsigned pool)
{
    if (pool == 1) {
        allocator()->setUseOnOOM(0, pool_ids[pool], false);
    }
    allocator()->releasePool(0, pool_ids[pool]);
    allocator()->emptyCache(pool_ids[pool]);
    put_calls();
}

void side_capture(unsigned stream, unsigned, bool begin)
{
    cudaGraph_t graph = nullptr;
    setCurrentCUDAStream(streams[stream]);
    if (begin) {
        allocator()->markCaptureBegin(0);
        if (begin_capture(streams[stream].stream(), cudaStreamCaptureModeGlobal)) {
            fprintf(stderr, "capture does not begin\n");
            exit(1);
        }
    } else {
        if (end_capture(streams[stream].stream(), &graph)) {
            fprintf(stderr, "capture does not end\n");
            exit(1);
        }
        allocator()->markCaptureEnd(0);
        graph_destroy(graph);
    }
}

void side_reset(bool peaks)
{
    if (peaks) {
        allocator()->resetPeakStats(0);
    } else {
        allocator()->resetAccumulatedStats(0);
    }
}

void side_stats()
{
    auto s = allocator()->getDeviceStats(0);
    for (const StatArray *a :
         {&s.allocation, &s.allocated_bytes, &s.active, &s.active_bytes, &s.requested_bytes,
          &s.segment, &s.reserved_bytes, &s.inactive_split, &s.inactive_split_bytes}) {
        put_array(*a);
    }
    put_stat(s.oversize_allocations);
    put_stat(s.oversize_segments);
    int64_t scalars[] = {s.num_alloc_retries, s.num_ooms,         s.num_oom_rejections,
                         s.num_sync_all_streams, s.num_device_alloc, s.num_device_free,
                         s.max_split_size};
    for (uint64_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++) {
        ow_put(OW_SCALAR, i, static_cast<uint64_t>(scalars[i]), 0, 0);
    }
    for (unsigned i = 0; i < config.pools; i++) {
        auto it = s.reserved_bytes_by_private_pools.find(pool_ids[i]);
        if (it != s.reserved_bytes_by_private_pools.end()) {
            put_array(it->second);
        }
    }
}

void side_snapshot()
{
    auto info = allocator()->snapshot({0, 0}, false);
    for (const auto &s : info.segments) {
        uint64_t flags = (s.is_large ? 0 : 1) | (s.is_expandable ? 2 : 0);
        ow_put(OW_SEGMENT, ow_rel(s.address), s.total_size,
               static_cast<uint64_t>(index_of(s.stream)) << 32 |
                   pool_of(s.owner_private_pool_id) << 8 | flags,
               static_cast<uint32_t>(s.registration_counter));
        for (const auto &b : s.blocks) {
            ow_put(OW_BLOCK, b.size, b.requested_size, (b.allocated ? 1 : 0) + (b.active ? 2 : 0),
                   0);
        }
    }
}

void side_settings(const char *text)
{
    using Common = c10::CachingAllocator::AcceleratorAllocatorConfig;
    using Cuda = CUDACachingAllocator::CUDAAllocatorConfig;
    static const char internal[] = "please report a bug to PyTorch. ";
    try {
        c10::CachingAllocator::setAllocatorSettings(text);
    } catch (const c10::Error &e) {
        const char *what = e.what_without_backtrace();
        const char *tail = strstr(what, internal);
        printf("%s\n", tail ? tail + sizeof internal - 1 : what);
        return;
    } catch (const std::exception &e) {
        printf("%s\n", e.what());
        return;
    }
    printf("%zu %zu %zu %.17g %d %d %d %d %d %d %.17g %zu %zu %zu %zu %d",
           Common::large_segment_size(), Common::max_split_size(),
           Common::max_non_split_rounding_size(), Common::garbage_collection_threshold(),
           Common::use_expandable_segments(), Cuda::release_lock_on_cudamalloc(),
           Cuda::graph_capture_record_stream_reuse(), Cuda::throw_on_cudamalloc_oom(),
           Common::pinned_use_background_threads(), Cuda::pinned_use_cuda_host_register(),
           Cuda::per_process_memory_fraction(), Cuda::pinned_num_register_threads(),
           Cuda::pinned_reserve_segment_size_mb(), Common::pinned_max_round_threshold(),
           Common::pinned_max_cached_size(), Cuda::pinned_free_catch_all());
    for (size_t d : Common::roundup_power2_divisions()) {
        printf(" %zu", d);
    }
    printf("\n");
}
