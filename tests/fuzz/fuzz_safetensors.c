/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: headers of safetensors files, and their index. The first byte chooses: 'i' an index, else a
 * file. Tensors that are returned lie in order inside the data; failures say something.
 */

#include "format/safetensors.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_arena arena;
    struct plim_err err;
    plim_arena_init(&arena, UINT64_C(64) << 20);
    plim_err_clear(&err);
    enum plim_status st;
    if (size > 0 && data[0] == 'i') {
        struct plim_safetensors_index index;
        st = plim_safetensors_index_read(
            &arena, (struct plim_str){(const char *)data + 1, size - 1}, &index, &err);
        for (size_t i = 0; st == PLIM_OK && i < index.n_shards; i++) {
            must(index.shards[i][0] != '/' && index.shards[i][0] != '\0');
        }
    } else {
        struct plim_source_bytes state = {{(const char *)data, size}};
        struct plim_source source = plim_source_bytes(&state, state.rest);
        struct plim_tensors tensors;
        st = plim_safetensors_read(&arena, &source, &tensors, &err);
        uint64_t sum = 0;
        for (size_t i = 0; st == PLIM_OK && i < tensors.n; i++) {
            must(tensors.items[i].name.p[tensors.items[i].name.n] == '\0');
            sum += tensors.items[i].bytes;
        }
        must(st != PLIM_OK || sum == tensors.bytes);
    }
    must(st == PLIM_OK || err.message[0] != '\0');
    plim_arena_fini(&arena);
    return 0;
}
