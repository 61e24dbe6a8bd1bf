/* SPDX-License-Identifier: Apache-2.0 */

/* See replay_input.h. */

#include "cli/replay_input.h"

#include "replay/repair.h"

static enum plim_status prepare(const struct plim_replay_words *words, struct plim_replay_input *in,
                                struct plim_err *err)
{
    struct plim_requests_options options = {.device_total = words->device_memory.value,
                                            .external = words->external.value};
    uint64_t device =
        words->device.given ? words->device.value : plim_requests_busiest(&in->snapshot);
    if (words->torch_version) {
        PLIM_TRY(
            plim_torch_version_parse(plim_str_from(words->torch_version), &options.version, err));
    }
    if (device >= in->snapshot.devices.n) {
        return plim__fail(err, PLIM_E_NOTFOUND, "the snapshot has no device %llu",
                          (unsigned long long)device);
    }
    PLIM_TRY(plim_requests_build(&in->snapshot, (uint32_t)device, &options, &in->requests, err));
    PLIM_TRY(plim_requests_repair(&in->requests, words->device_memory.value, 0, NULL, err));
    in->version = in->requests.conf.version;
    in->external = words->external.value;
    if (words->device_memory.given) {
        in->capacity = words->device_memory.value;
        in->capacity_by = "given";
        return PLIM_OK;
    }
    uint64_t known = plim_replay_capacity(&in->requests);
    in->capacity = known ? plim_add_sat(known, in->external) : 0;
    in->capacity_by = !known                                                    ? "unknown"
                      : in->requests.recorded_failure && !in->requests.cap_seen ? "computed"
                                                                                : "estimated";
    return PLIM_OK;
}

enum plim_status plim_replay_input(const struct plim_replay_words *words,
                                   struct plim_replay_input *out, struct plim_err *err)
{
    if (words->scale.given && !(words->scale.value > 0 && words->scale.value <= 1000)) {
        return plim__fail(err, PLIM_E_USAGE, "--scale must be above 0 and at most 1000");
    }
    PLIM_TRY(plim_check_device_memory(words->device_memory, err));
    *out = (struct plim_replay_input){.scale = words->scale.given ? words->scale.value : 1};
    PLIM_TRY(plim_snapshot_read_file(words->path, &words->limits, &out->snapshot, err));
    enum plim_status st = prepare(words, out, err);
    if (st != PLIM_OK) {
        plim_replay_input_fini(out);
    }
    return st;
}

void plim_replay_input_fini(struct plim_replay_input *input)
{
    plim_requests_fini(&input->requests);
    plim_snapshot_fini(&input->snapshot);
}
