/* SPDX-License-Identifier: Apache-2.0 */

/* Checks of the driver, the devices, and Python's GPU packages. */

#include "base/bytes.h"
#include "device/doctor.h"

#include <stdio.h>
#include <stdlib.h>

static const char works_without[] = "reading messages and snapshots needs no GPU";

static const char *driver_advice(int code)
{
    switch (code) {
    case PLIM_NVML_VERSION_MISMATCH:
        return "the driver was updated while loaded: reboot, or unload and load the nvidia modules";
    case PLIM_NVML_NOT_LOADED:
        return "load the kernel module (modprobe nvidia), or start the container with GPU access "
               "(docker run --gpus all)";
    default:
        return "run nvidia-smi: it meets the same error";
    }
}

static enum plim_status check_devices(struct plim_checks *checks, const struct plim_nvml *nvml,
                                      struct plim_err *err)
{
    for (unsigned i = 0; i < nvml->n_gpus; i++) {
        struct plim_gpu gpu;
        struct plim_check check = {.id = "gpu.device", .title = "GPU"};
        char total[PLIM_BYTES_TEXT];
        char used[PLIM_BYTES_TEXT];
        if (plim_nvml_gpu(nvml, i, &gpu, NULL) != PLIM_OK) {
            check.status = PLIM_CHECK_WARN;
            check.advice = "the device may have fallen off the bus: see dmesg for Xid errors";
            PLIM_TRY(plim_check_text(checks, &check.detail, err, "%u: does not answer", i));
        } else if (!gpu.memory_valid) {
            PLIM_TRY(plim_check_text(checks, &check.detail, err, "%u: %s, memory not reported", i,
                                     gpu.name));
        } else {
            PLIM_TRY(plim_check_text(checks, &check.detail, err, "%u: %s, %s, %s in use", i,
                                     gpu.name, plim_bytes_format(total, gpu.total),
                                     plim_bytes_format(used, gpu.used)));
        }
        PLIM_TRY(plim_check_add(checks, check, err));
    }
    if (nvml->n_gpus == 0) {
        PLIM_TRY(plim_check_add(checks,
                                (struct plim_check){"gpu.device", "GPU", PLIM_CHECK_MISSING,
                                                    "the driver reports no device", works_without},
                                err));
    }
    return PLIM_OK;
}

static enum plim_status check_nvml(struct plim_checks *checks, int *cuda_version,
                                   struct plim_err *err)
{
    struct plim_nvml nvml;
    struct plim_check check = {.id = "gpu.nvml", .title = "NVIDIA driver"};
    enum plim_status opened = plim_nvml_open(&nvml, NULL);
    enum plim_status st = PLIM_OK;
    *cuda_version = nvml.cuda_version;
    if (opened == PLIM_E_NOTFOUND) {
        check.status = PLIM_CHECK_MISSING;
        check.detail = "libnvidia-ml.so.1 is not here";
        check.advice = works_without;
    } else if (opened != PLIM_OK) {
        check.status = PLIM_CHECK_WARN;
        check.advice = driver_advice(nvml.init_code);
        st = plim_check_text(checks, &check.detail, err, "NVML does not start: %s", nvml.init_text);
    } else {
        st = plim_check_text(checks, &check.detail, err, "%s, CUDA up to %d.%d", nvml.driver,
                             nvml.cuda_version / 1000, nvml.cuda_version % 1000 / 10);
    }
    st = st == PLIM_OK ? plim_check_add(checks, check, err) : st;
    if (st == PLIM_OK && opened == PLIM_OK) {
        st = check_devices(checks, &nvml, err);
    }
    plim_nvml_close(&nvml);
    return st;
}

static enum plim_status check_cuda(struct plim_checks *checks, int *cuda_version,
                                   struct plim_err *err)
{
    struct plim_check check = {.id = "gpu.cuda", .title = "CUDA driver library"};
    int version = 0;
    switch (plim_cuda_driver_version(&version, NULL)) {
    case PLIM_OK:
        *cuda_version = version;
        PLIM_TRY(plim_check_text(checks, &check.detail, err, "libcuda.so.1, CUDA %d.%d",
                                 version / 1000, version % 1000 / 10));
        break;
    case PLIM_E_NOTFOUND:
        check.status = PLIM_CHECK_MISSING;
        check.detail = "libcuda.so.1 is not here";
        check.advice = works_without;
        break;
    default:
        check.status = PLIM_CHECK_WARN;
        check.detail = "libcuda.so.1 does not say its version";
        check.advice = "it may be a stub: look at where the dynamic linker finds it";
        break;
    }
    return plim_check_add(checks, check, err);
}

static enum plim_status check_visible(struct plim_checks *checks, const struct plim_world *world,
                                      struct plim_err *err)
{
    const char *value = world->getenv("CUDA_VISIBLE_DEVICES");
    struct plim_check check = {.id = "gpu.visible", .title = "CUDA_VISIBLE_DEVICES"};
    if (value == NULL) {
        return PLIM_OK;
    }
    if (value[0] == '\0' || strncmp(value, "-1", 2) == 0 || strcmp(value, "NoDevFiles") == 0) {
        check.status = PLIM_CHECK_WARN;
        check.advice = "unset it, or name devices as in 0,1";
        PLIM_TRY(plim_check_text(checks, &check.detail, err, "'%s' hides every GPU", value));
    } else {
        PLIM_TRY(plim_check_text(checks, &check.detail, err,
                                 "%s: a program's cuda:0 is the first of these", value));
    }
    return plim_check_add(checks, check, err);
}

enum plim_status plim_doctor_gpu(struct plim_checks *checks, const struct plim_world *world,
                                 int *cuda_version, struct plim_err *err)
{
    PLIM_TRY(check_nvml(checks, cuda_version, err));
    PLIM_TRY(check_cuda(checks, cuda_version, err));
    return check_visible(checks, world, err);
}

/* "2.14.1+cu130" was built for CUDA 13.0: 13000; 0 when the version does not say. */
static int built_for(const char *torch_version)
{
    const char *tag = strstr(torch_version, "+cu");
    long n = tag ? strtol(tag + 3, NULL, 10) : 0;
    return n >= 90 && n < 1000 ? (int)(n / 10 * 1000 + n % 10 * 10) : 0;
}

/* Within one major version of CUDA newer runtimes run on older drivers; across majors they do not. */
static enum plim_status check_torch_driver(struct plim_checks *checks, const char *torch_version,
                                           int driver, struct plim_err *err)
{
    int wants = built_for(torch_version);
    struct plim_check check = {.id = "python.torch_driver", .title = "PyTorch and driver"};
    if (wants == 0 || driver == 0) {
        return PLIM_OK;
    }
    if (wants / 1000 > driver / 1000) {
        check.status = PLIM_CHECK_WARN;
        check.advice = "update the driver, or install a PyTorch built for an older CUDA";
        PLIM_TRY(plim_check_text(checks, &check.detail, err,
                                 "PyTorch is built for CUDA %d.%d, the driver supports up to %d.%d",
                                 wants / 1000, wants % 1000 / 10, driver / 1000,
                                 driver % 1000 / 10));
    } else {
        PLIM_TRY(plim_check_text(checks, &check.detail, err, "built for CUDA %d.%d, driver %d.%d",
                                 wants / 1000, wants % 1000 / 10, driver / 1000,
                                 driver % 1000 / 10));
    }
    return plim_check_add(checks, check, err);
}

static enum plim_status package(struct plim_checks *checks, const char *id, const char *title,
                                const char *version, struct plim_err *err)
{
    struct plim_check check = {.id = id, .title = title};
    if (version[0] == '\0') {
        return PLIM_OK;
    }
    PLIM_TRY(plim_check_text(checks, &check.detail, err, "%s", version));
    return plim_check_add(checks, check, err);
}

enum plim_status plim_doctor_python(struct plim_checks *checks, const struct plim_python *python,
                                    int cuda_version, struct plim_err *err)
{
    struct plim_check check = {.id = "python", .title = "Python"};
    if (python == NULL) {
        check.status = PLIM_CHECK_MISSING;
        check.detail = "no python3 on the PATH answers";
        check.advice = "reading messages and snapshots needs none; dryrun does";
        return plim_check_add(checks, check, err);
    }
    PLIM_TRY(
        plim_check_text(checks, &check.detail, err, "%s, %s", python->version, python->executable));
    PLIM_TRY(plim_check_add(checks, check, err));
    if (python->torch[0] == '\0') {
        PLIM_TRY(plim_check_add(
            checks,
            (struct plim_check){"python.torch", "PyTorch", PLIM_CHECK_MISSING,
                                "not installed for this Python",
                                "activate the environment that has it before you run doctor"},
            err));
    } else {
        PLIM_TRY(package(checks, "python.torch", "PyTorch", python->torch, err));
        PLIM_TRY(check_torch_driver(checks, python->torch, cuda_version, err));
    }
    PLIM_TRY(package(checks, "python.vllm", "vLLM", python->vllm, err));
    PLIM_TRY(package(checks, "python.sglang", "SGLang", python->sglang, err));
    PLIM_TRY(package(checks, "python.transformers", "Transformers", python->transformers, err));
    return package(checks, "python.jax", "JAX", python->jax, err);
}

struct plim_alloc_variable plim_doctor_alloc_variable(const struct plim_world *world)
{
    static const char *const names[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF",
                                        "PYTORCH_ALLOC_CONF"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *value = world->getenv(names[i]);
        if (value != NULL) {
            return (struct plim_alloc_variable){names[i], value};
        }
    }
    return (struct plim_alloc_variable){NULL, NULL};
}

/* The old and the new name are both set: PyTorch reads the old one. */
static enum plim_status check_two_names(struct plim_checks *checks, const struct plim_world *world,
                                        struct plim_err *err)
{
    struct plim_alloc_variable read = plim_doctor_alloc_variable(world);
    const char *generic = world->getenv("PYTORCH_ALLOC_CONF");
    struct plim_check check = {.id = "alloc.names", .title = "PYTORCH_ALLOC_CONF"};
    if (read.name == NULL || generic == NULL || strcmp(read.name, "PYTORCH_ALLOC_CONF") == 0) {
        return PLIM_OK;
    }
    if (strcmp(read.value, generic) == 0) {
        PLIM_TRY(plim_check_text(checks, &check.detail, err, "equal to %s", read.name));
    } else {
        check.status = PLIM_CHECK_WARN;
        PLIM_TRY(plim_check_text(checks, &check.detail, err,
                                 "'%s' is ignored: PyTorch reads %s='%s' first", generic, read.name,
                                 read.value));
        PLIM_TRY(plim_check_text(checks, &check.advice, err, "unset %s", read.name));
    }
    return plim_check_add(checks, check, err);
}

enum plim_status plim_doctor_variables(struct plim_checks *checks, const struct plim_world *world,
                                       struct plim_err *err)
{
    const char *uncached = world->getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    PLIM_TRY(check_two_names(checks, world, err));
    if (uncached != NULL && uncached[0] != '\0') {
        PLIM_TRY(plim_check_add(
            checks,
            (struct plim_check){
                "alloc.no_caching", "PYTORCH_NO_CUDA_MEMORY_CACHING", PLIM_CHECK_WARN,
                "set: every tensor is a cudaMalloc of its own; snapshots and statistics stay empty",
                "unset it before you record a snapshot"},
            err));
    }
    return PLIM_OK;
}
