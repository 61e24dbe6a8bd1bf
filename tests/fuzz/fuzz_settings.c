/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: allocator settings and the model under them. The first line is a settings string, whose
 * first byte also picks the PyTorch release; what follows are requests of four bytes: slot, kind, size.
 * Whatever the settings are, the parser answers with values or with an error that says something, and
 * the model's structure stays sound.
 */

#include "alloc/torch.h"

#include <stdlib.h>

#define SLOTS    16
#define REQUESTS 400

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sound(const struct plim_torch *t)
{
    if (plim_torch_check(t, NULL) != PLIM_OK) {
        abort();
    }
}

/* One request: allocate into an empty slot or free a full one; sizes are (m + 1) << (e % 31). */
static void request(struct plim_torch *t, uint64_t blocks[SLOTS], const uint8_t *four)
{
    uint64_t *block = &blocks[four[0] % SLOTS];
    uint64_t size = ((uint64_t)four[2] + 1) << (four[3] % 31);
    enum plim_status st = PLIM_OK;
    if (four[1] == 0xff) {
        st = plim_torch_empty_cache(t, PLIM_TORCH_POOL_DEFAULT, NULL);
    } else if (*block) {
        st = four[1] & 1 ? plim_torch_free_deferred(t, *block, NULL)
                         : plim_torch_free(t, *block, NULL);
        *block = PLIM_TORCH_NONE;
    } else {
        st = plim_torch_alloc(t, size, 0, PLIM_TORCH_POOL_DEFAULT, block, NULL);
    }
    if (st != PLIM_OK) {
        abort();
    }
    sound(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    size_t n = line ? (size_t)(line - data) : size;
    unsigned minor = n ? 1u + data[0] % 14u : 14u;
    struct plim_conf conf;
    struct plim_err err = {0};
    plim_conf_init(&conf, (struct plim_torch_version){2, (uint16_t)minor});
    if (plim_conf_parse(&conf, (struct plim_str){(const char *)data, n}, &err) != PLIM_OK &&
        err.message[0] == '\0') {
        abort();
    }
    struct plim_devmodel device;
    struct plim_devmodel_config dc = {.total = 4 * PLIM_GIB};
    struct plim_torch_config tc = {.version = conf.version, .conf = &conf, .device = &device};
    struct plim_torch *t = NULL;
    uint64_t blocks[SLOTS] = {0};
    if (plim_devmodel_init(&device, &dc, NULL) == PLIM_OK) {
        if (plim_torch_new(&tc, &t, NULL) == PLIM_OK) {
            for (size_t at = n + 1; at + 4 <= size && at < n + REQUESTS * (size_t)4; at += 4) {
                request(t, blocks, data + at);
            }
            plim_torch_delete(t);
        }
        plim_devmodel_fini(&device);
    }
    return 0;
}
