/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Math, communication and tracing libraries that compute nothing: the entry points whose callers look
 * at more than a status. All the others are rows of hooks.def.
 */

#include "sim.h"
#include <stdlib.h>
#include <string.h>

/* ---- cuBLASLt */

SIM_API size_t cublasLtGetVersion(void)
{
    return 130000;
}

/* One algorithm that needs no workspace; the head of cublasLtMatmulHeuristicResult_t is cleared. */
SIM_API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *op, void *a, void *b, void *c,
                                           void *d, void *preference, int requested, void *results,
                                           int *returned)
{
    (void)handle, (void)op, (void)a, (void)b, (void)c, (void)d, (void)preference;
    if (requested > 0) {
        memset(results, 0, 80);
    }
    *returned = requested > 0;
    return 0;
}

SIM_API const char *cublasGetStatusString(int status)
{
    return status == 0 ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED";
}

/* ---- cuDNN 9 */

struct cudnn { /* a handle */
    void *stream;
};

SIM_API size_t cudnnGetVersion(void)
{
    return 92400;
}

SIM_API size_t cudnnGetCudartVersion(void)
{
    return 13000;
}

SIM_API int cudnnGetProperty(int type, int *value)
{
    *value = type == 0 ? 9 : type == 1 ? 24 : 0;
    return 0;
}

SIM_API const char *cudnnGetErrorString(int status)
{
    return status == 0 ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_NOT_SUPPORTED";
}

SIM_API void cudnnGetLastErrorString(char *out, size_t n)
{
    if (n > 0) {
        out[0] = '\0';
    }
}

SIM_API int cudnnCreate(struct cudnn **out)
{
    *out = calloc(1, sizeof **out);
    return *out == NULL ? 2 : 0;
}

SIM_API int cudnnDestroy(struct cudnn *handle)
{
    free(handle);
    return 0;
}

SIM_API int cudnnSetStream(struct cudnn *handle, void *stream)
{
    handle->stream = stream;
    return 0;
}

SIM_API int cudnnGetStream(struct cudnn *handle, void **stream)
{
    *stream = handle->stream;
    return 0;
}

/* One algorithm, number 0, no workspace: the 48 bytes of a cudnnConvolution...AlgoPerf_t cleared. */
static int one_algorithm(int requested, int *returned, void *perf)
{
    if (requested > 0) {
        memset(perf, 0, 48);
    }
    *returned = requested > 0;
    return 0;
}

SIM_API int cudnnGetConvolutionForwardAlgorithm_v7(void *handle, void *x, void *w, void *conv,
                                                   void *y, int requested, int *returned,
                                                   void *perf)
{
    (void)handle, (void)x, (void)w, (void)conv, (void)y;
    return one_algorithm(requested, returned, perf);
}

SIM_API int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *handle, void *w, void *dy, void *conv,
                                                        void *dx, int requested, int *returned,
                                                        void *perf)
{
    return cudnnGetConvolutionForwardAlgorithm_v7(handle, w, dy, conv, dx, requested, returned,
                                                  perf);
}

SIM_API int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *handle, void *x, void *dy,
                                                          void *conv, void *dw, int requested,
                                                          int *returned, void *perf)
{
    return cudnnGetConvolutionForwardAlgorithm_v7(handle, x, dy, conv, dw, requested, returned,
                                                  perf);
}

/*
 * The backend's descriptors accept everything. Reading one back answers what its users check: one
 * heuristic result, one nested descriptor, no knobs, numbers 0 (workspace and shared memory among
 * them). Attribute names and types as in cudnn_graph_v9.h.
 */
enum {
    TYPE_INT64 = 3,
    TYPE_DESCRIPTOR = 15,
    TYPE_INT32 = 23
};
enum {
    ATTR_KNOB_CHOICES = 302,
    ATTR_HEUR_RESULTS = 202
};

SIM_API int cudnnBackendCreateDescriptor(int type, void **out)
{
    int *d = calloc(1, 64);
    if (d == NULL) {
        return 2;
    }
    *d = type;
    *out = d;
    return 0;
}

SIM_API int cudnnBackendDestroyDescriptor(void *descriptor)
{
    free(descriptor);
    return 0;
}

SIM_API int cudnnBackendGetAttribute(void *descriptor, int attribute, int type, int64_t room,
                                     int64_t *n, void *out)
{
    int64_t count = 0;
    (void)descriptor;
    if (attribute == ATTR_HEUR_RESULTS ||
        (type == TYPE_DESCRIPTOR && attribute != ATTR_KNOB_CHOICES)) {
        count = 1;
    } else if ((type == TYPE_INT64 || type == TYPE_INT32) && out != NULL && room > 0) {
        memset(out, 0, type == TYPE_INT64 ? 8 : 4);
        count = 1;
    }
    if (n != NULL) {
        *n = count;
    }
    return 0;
}

/* ---- NCCL: versions and texts */

SIM_API int ncclGetVersion(int *version)
{
    *version = 23007;
    return 0;
}

SIM_API const char *ncclGetErrorString(int code)
{
    return code == 0 ? "no error" : "not simulated";
}

SIM_API const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return "";
}

/* ---- NVRTC: compiling gives an empty program, which every loader here accepts */

SIM_API int nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return 0;
}

SIM_API const char *nvrtcGetErrorString(int code)
{
    return code == 0 ? "NVRTC_SUCCESS" : "NVRTC_ERROR_INTERNAL_ERROR";
}

SIM_API int nvrtcGetLoweredName(void *program, const char *name, const char **out)
{
    (void)program;
    *out = name;
    return 0;
}

/* ---- CUPTI: no activity is ever recorded */

SIM_API int cuptiGetVersion(uint32_t *version)
{
    *version = 130000;
    return 0;
}

SIM_API int cuptiActivityGetNextRecord(void *buffer, size_t bytes, void **record)
{
    (void)buffer, (void)bytes, (void)record;
    return 12; /* no more records */
}

SIM_API int cuptiGetResultString(int code, const char **out)
{
    *out = code == 0 ? "CUPTI_SUCCESS" : "CUPTI_ERROR_NOT_INITIALIZED";
    return 0;
}

SIM_API int cuptiGetCallbackName(int domain, uint32_t id, const char **out)
{
    (void)domain, (void)id;
    *out = "";
    return 0;
}
