/* SPDX-License-Identifier: Apache-2.0 */

/* The table of all metrics, in the order in which they are written. See metrics.h. */

#include "report/metrics.h"

#include "base/num.h"

#define DEVICE(name, figure, scale, help)                                                          \
    {                                                                                              \
        "device_" name, GAUGE, "uuid", help, plim__rows_device_figure, figure, (double)(scale)     \
    }
#define PROCESS   "uuid, pid, process"
#define ALLOCATOR PROCESS ", ordinal, rank"
#define OWNER     PROCESS ", ordinal, owner"
#define ENGINE    "engine, rank"
#define FINDING   "class, severity, uuid, pid, process"
#define GAUGE     PLIM_METRIC_GAUGE
#define TOTAL     PLIM_METRIC_COUNTER
#define INFO      PLIM_METRIC_INFO

#define ALLOCATOR_GAUGE(name, figure, help)                                                        \
    {                                                                                              \
        "allocator_" name, GAUGE, ALLOCATOR, help, plim__rows_allocator_figure, figure, 0          \
    }
#define ALLOCATOR_TOTAL(name, figure, help)                                                        \
    {                                                                                              \
        "allocator_" name, TOTAL, ALLOCATOR, help, plim__rows_allocator_figure, figure, 0          \
    }
#define ENGINE_GAUGE(name, figure, help)                                                           \
    {                                                                                              \
        "engine_" name, GAUGE, ENGINE, help, plim__rows_engine_figure, figure, 0                   \
    }
#define ENGINE_TOTAL(name, figure, help)                                                           \
    {                                                                                              \
        "engine_" name, TOTAL, ENGINE, help, plim__rows_engine_figure, figure, 0                   \
    }

static const struct plim_metric table[] = {
    /* The machine. */
    {"build", INFO, "version", "The program that wrote this.", plim__rows_build, 0, 0},
    {"host_memory_size_bytes", GAUGE, "", "Memory of the host.", plim__rows_host, 0, 0},
    {"host_memory_available_bytes", GAUGE, "", "Of it, what programs may still get.",
     plim__rows_host, 1, 0},

    /* Devices. */
    {"device", INFO, "uuid, device, name, pci, vendor, parent, unified",
     "What is known of a device: its place in the order of its driver, name, PCI address, the uuid "
     "of "
     "the device that it is an instance of, whether it shares the host's memory.",
     plim__rows_device_info, 0, 0},
    {"device_up", GAUGE, "uuid", "1 when the device answers its driver, 0 when not.",
     plim__rows_device_up, 0, 0},
    {"device_state", GAUGE, "uuid, state",
     "1 for the state that the device is in: ok, unsupported, denied, lost, hung or error.",
     plim__rows_device_state, 0, 0},
    {"device_figures_odd", GAUGE, "uuid",
     "1 when the driver's figures contradicted each other: they are then what can be saved of "
     "them.",
     plim__rows_device_odd, 0, 0},
    DEVICE("memory_size_bytes", PLIM_FIGURE_TOTAL, 0, "Memory of the device."),
    DEVICE("memory_used_bytes", PLIM_FIGURE_USED, 0,
           "Held by somebody, without what the driver reserves: used + free + reserved = size."),
    DEVICE("memory_free_bytes", PLIM_FIGURE_FREE, 0, "Held by nobody."),
    DEVICE("memory_reserved_bytes", PLIM_FIGURE_RESERVED, 0,
           "Held by the driver and the firmware."),
    {"device_memory_unknown_bytes", GAUGE, "uuid", "Used bytes that belong to no listed process.",
     plim__rows_device_unknown, 0, 0},
    {"device_ledger_bytes", GAUGE, "uuid, part",
     "What every byte of the device is: of allocators that tell of themselves live, stranded and "
     "releasable; outside of them in the same processes; of other processes; unknown; reserved; "
     "free. The sum is the size.",
     plim__rows_device_ledger, 0, 0},
    DEVICE("bar1_size_bytes", PLIM_FIGURE_BAR1_TOTAL, 0,
           "Address space through which the host reaches the device's memory."),
    DEVICE("bar1_used_bytes", PLIM_FIGURE_BAR1_USED, 0, "Of it, what is mapped."),
    DEVICE("host_memory_size_bytes", PLIM_FIGURE_HOST_TOTAL, 0,
           "Host memory that the device may use (GTT)."),
    DEVICE("host_memory_used_bytes", PLIM_FIGURE_HOST_USED, 0, "Of it, what it uses."),
    DEVICE("busy_ratio", PLIM_FIGURE_BUSY, 0.01,
           "Share of the driver's last period in which anything ran."),
    DEVICE("memory_busy_ratio", PLIM_FIGURE_MEMORY_BUSY, 0.01,
           "Share of the driver's last period in which memory was read or written."),
    DEVICE("temperature_celsius", PLIM_FIGURE_TEMPERATURE, 0, "Temperature."),
    DEVICE("power_watts", PLIM_FIGURE_POWER, 0.001, "Power that it draws."),
    DEVICE("sm_clock_hertz", PLIM_FIGURE_SM_CLOCK, 1e6, "Clock of the processors."),
    DEVICE("memory_clock_hertz", PLIM_FIGURE_MEMORY_CLOCK, 1e6, "Clock of the memory."),
    {"device_ecc_errors", TOTAL, "uuid, kind",
     "Errors of the memory since the driver was loaded: corrected or uncorrected.",
     plim__rows_device_ecc, 0, 0},
    DEVICE("retired_pages", PLIM_FIGURE_RETIRED_PAGES, 0, "Pages that are no longer used."),
    DEVICE("remapped_rows", PLIM_FIGURE_REMAPPED_ROWS, 0, "Rows replaced by spare ones."),
    DEVICE("remap_pending", PLIM_FIGURE_REMAP_PENDING, 0,
           "1 when a row waits for a reset of the device to be replaced."),
    {"device_xids", TOTAL, "uuid", "Critical errors (XIDs) seen since the monitor was started.",
     plim__rows_device_figure, PLIM_FIGURE_XIDS, 0},
    DEVICE("last_xid", PLIM_FIGURE_LAST_XID, 0, "Number of the last critical error."),
    {"device_full_in_seconds", GAUGE, "uuid, bound",
     "Time until the device is full by the present trend of its use: estimate, and the bounds low "
     "and "
     "high of an interval of 80 %. Absent while its use does not grow.",
     plim__rows_device_left, 0, 0},

    /* Processes. */
    {"process", INFO, "pid, process, container, pod, unit",
     "What the host says of a process that uses a device: its name, container, Kubernetes' pod, "
     "systemd's unit.",
     plim__rows_process_info, 0, 0},
    {"process_resident_bytes", GAUGE, "pid, process", "Host memory of the process.",
     plim__rows_process_resident, 0, 0},
    {"process_memory_bytes", GAUGE, PROCESS ", gpu_instance, compute_instance",
     "Device memory of the process, as the driver says.", plim__rows_process_memory, 0, 0},
    {"process_ledger_bytes", GAUGE, PROCESS ", part, gpu_instance, compute_instance",
     "What the memory of a process that tells of itself consists of: allocated and slack of its "
     "framework's allocator, outside of it as recorded, and unknown. The sum is the process's "
     "share "
     "of the device's used bytes.",
     plim__rows_process_ledger, 0, 0},

    /* Allocators. */
    ALLOCATOR_GAUGE("allocated_bytes", PLIM_ALLOCATOR_ALLOCATED, "Bytes handed out."),
    ALLOCATOR_GAUGE("active_bytes", PLIM_ALLOCATOR_ACTIVE,
                    "Bytes handed out, or waiting for a stream to be done with them."),
    ALLOCATOR_GAUGE("requested_bytes", PLIM_ALLOCATOR_REQUESTED,
                    "Bytes that callers asked for: allocated less rounding."),
    ALLOCATOR_GAUGE("reserved_bytes", PLIM_ALLOCATOR_RESERVED,
                    "Bytes of all segments that it got from the driver."),
    ALLOCATOR_GAUGE("inactive_split_bytes", PLIM_ALLOCATOR_INACTIVE_SPLIT,
                    "Free pieces of segments in use: they cannot go back to the driver."),
    ALLOCATOR_GAUGE("peak_allocated_bytes", PLIM_ALLOCATOR_PEAK_ALLOCATED,
                    "Most that was handed out at once."),
    ALLOCATOR_GAUGE("peak_reserved_bytes", PLIM_ALLOCATOR_PEAK_RESERVED,
                    "Most that the segments had at once."),
    ALLOCATOR_GAUGE("segments", PLIM_ALLOCATOR_SEGMENTS, "Number of segments."),
    ALLOCATOR_TOTAL("alloc_retries", PLIM_ALLOCATOR_RETRIES,
                    "Requests that were served only after the cache was emptied."),
    ALLOCATOR_TOTAL("ooms", PLIM_ALLOCATOR_OOMS, "Requests that failed for lack of memory."),
    ALLOCATOR_TOTAL("device_allocs", PLIM_ALLOCATOR_DEVICE_ALLOCS,
                    "Segments that it got from the driver."),
    ALLOCATOR_TOTAL("device_frees", PLIM_ALLOCATOR_DEVICE_FREES,
                    "Segments that it gave back to the driver."),
    {"allocator_stale", GAUGE, ALLOCATOR,
     "1 when the process has told nothing for three of its periods.", plim__rows_allocator_stale, 0,
     0},

    /* Owners of recorded processes. */
    {"owner_memory_bytes", GAUGE, OWNER ", outside",
     "Device memory of a recorded process by owner: who asked for it. outside=\"true\": not the "
     "framework's allocator.",
     plim__rows_owner_figure, 0, 0},
    {"owner_memory_peak_bytes", GAUGE, OWNER ", outside", "Most of it at once.",
     plim__rows_owner_figure, 1, 0},
    {"owner_failures", TOTAL, OWNER ", outside", "Calls that the driver refused.",
     plim__rows_owner_figure, 2, 0},

    /* Engines. */
    {"engine", INFO, "engine, kind, model, rank, pid", "What is known of a serving engine.",
     plim__rows_engine_info, 0, 0},
    {"engine_up", GAUGE, ENGINE, "1 when the engine answered, 0 when not.", plim__rows_engine_up, 0,
     0},
    ENGINE_GAUGE("requests_running", PLIM_ENGINE_FIGURE_RUNNING, "Requests being served."),
    ENGINE_GAUGE("requests_waiting", PLIM_ENGINE_FIGURE_WAITING, "Requests that wait."),
    ENGINE_GAUGE("requests_swapped", PLIM_ENGINE_FIGURE_SWAPPED,
                 "Requests whose state was moved to the host."),
    ENGINE_GAUGE("kv_usage_ratio", PLIM_ENGINE_FIGURE_KV_USAGE,
                 "Share of the KV pool that is in use."),
    ENGINE_GAUGE("kv_capacity_tokens", PLIM_ENGINE_FIGURE_KV_CAPACITY,
                 "Tokens that the KV pool has room for."),
    ENGINE_GAUGE("kv_evictable_ratio", PLIM_ENGINE_FIGURE_KV_CACHED,
                 "Share of the KV pool that is kept for reuse and can go."),
    ENGINE_TOTAL("preemptions", PLIM_ENGINE_FIGURE_PREEMPTIONS,
                 "Requests that were taken off the device for lack of KV memory."),
    ENGINE_TOTAL("prompt_tokens", PLIM_ENGINE_FIGURE_PROMPT_TOKENS, "Tokens of prompts."),
    ENGINE_TOTAL("generation_tokens", PLIM_ENGINE_FIGURE_GENERATION_TOKENS, "Tokens of answers."),
    ENGINE_TOTAL("requests_finished", PLIM_ENGINE_FIGURE_REQUESTS, "Requests that were answered."),
    ENGINE_TOTAL("requests_rejected", PLIM_ENGINE_FIGURE_REJECTED, "Requests that were refused."),
    ENGINE_TOTAL("prefix_queried_tokens", PLIM_ENGINE_FIGURE_PREFIX_QUERIES,
                 "Tokens that were looked up in the prefix cache."),
    ENGINE_TOTAL("prefix_hit_tokens", PLIM_ENGINE_FIGURE_PREFIX_HITS, "Of these, found in it."),
    ENGINE_GAUGE("asleep", PLIM_ENGINE_FIGURE_ASLEEP,
                 "1 when the engine has given its memory back (sleep mode)."),
    ENGINE_GAUGE("max_context_tokens", PLIM_ENGINE_FIGURE_MAX_CONTEXT,
                 "Longest prompt and answer together."),
    {"engine_component_bytes", GAUGE, "engine, rank, component",
     "What the engine's log gave to a part, on each of its devices: weights, kv_cache, graphs, "
     "activations, other.",
     plim__rows_engine_component, 0, 0},

    /* Findings. */
    {"finding_active", GAUGE, FINDING, "1 for each thing that is wrong now.",
     plim__rows_finding_active, 0, 0},
    {"finding_confidence_ratio", GAUGE, FINDING, "How sure the finding is.",
     plim__rows_finding_figure, 0, 0},
    {"finding_bytes", GAUGE, FINDING, "Bytes that it concerns: leaked, stranded, of others.",
     plim__rows_finding_figure, 1, 0},
    {"finding_growth_bytes_per_second", GAUGE, FINDING ", bound",
     "How fast it grows: estimate, low and high.", plim__rows_finding_figure, 2, 0},
    {"finding_oom_in_seconds", GAUGE, FINDING ", bound",
     "Time until a request fails: estimate, low and high.", plim__rows_finding_figure, 3, 0},
    {"happenings", TOTAL, "kind",
     "What happened since the monitor was started: processes that began and ended, XIDs, failures "
     "...",
     plim__rows_happened, 0, 0},

    /* The monitor itself. */
    {"samples", TOTAL, "", "Samples that were taken.", plim__rows_monitor, 0, 0},
    {"sample_timestamp_seconds", GAUGE, "", "When the last one was taken, since 1970.",
     plim__rows_monitor, 1, 0},
    {"sample_duration_seconds", GAUGE, "", "How long it took.", plim__rows_monitor, 2, 0},
    {"devices_hung", GAUGE, "", "Devices whose driver does not return.", plim__rows_monitor, 3, 0},
    {"monitor_start_timestamp_seconds", GAUGE, "", "When the monitor was started, since 1970.",
     plim__rows_monitor, 4, 0},
    {"source_errors", TOTAL, "source", "Failures of a source of what is known.", plim__rows_source,
     0, 0},
    {"source_duration_seconds", GAUGE, "source", "How long it took the last time.",
     plim__rows_source, 1, 1e-9},
#define PLIM__X(name, key, metric, kind, help)                                                     \
    {metric, kind, "", help, plim__rows_health, PLIM_HEALTH_##name, 0},
    PLIM_HEALTH_MAP(PLIM__X)
#undef PLIM__X
        {"series_dropped", GAUGE, "",
         "Series that this scrape left out because there are too many.", plim__rows_dropped, 0, 0},
};

const struct plim_metric *plim__metrics(size_t *n)
{
    *n = PLIM_COUNT_OF(table);
    return table;
}
