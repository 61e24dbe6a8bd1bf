/* SPDX-License-Identifier: Apache-2.0 */
/* See cuda_runtime_api.h. */
#include "cuda_runtime_api.h"
