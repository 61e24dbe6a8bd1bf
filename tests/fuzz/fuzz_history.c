/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: what a history file may hold. The first byte says what the rest is: 'c' a packed chunk, 'u' one before it is
 * packed, 'r' rows of the tail, each after its length in two bytes, their checks made good, 'd' a whole database.
 * Checks would keep nearly all mutations out, so 'u' and 'r' get past them. The answer is cells that are
 * finite and in order, or an error that says something.
 */

#include "base/intern.h"
#include "report/history.h"
#include "store/chunk.h"
#include "store/store.h"
#include "store/tail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

#define DEMAND(truth)                                                                              \
    do {                                                                                           \
        if (!(truth)) {                                                                            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_chunk(struct plim_str bytes)
{
    struct plim__chunk chunk = {0};
    static struct plim_cell cells[PLIM_CHUNK_ROWS];
    uint32_t figure = 0;
    struct plim_str body;
    if (plim__chunk_open(&chunk, bytes, 1000, NULL) == PLIM_OK) {
        DEMAND(chunk.rows <= PLIM_CHUNK_ROWS);
        for (size_t i = 1; i < chunk.rows; i++) {
            DEMAND(chunk.times.items[i] > chunk.times.items[i - 1]);
        }
        while (plim__chunk_next(&chunk, &figure, &body)) {
            bool good = plim__chunk_cells(&chunk, body, cells);
            for (size_t i = 0; good && i < chunk.rows; i++) {
                DEMAND(cells[i].n == 0 || (isfinite(cells[i].sum) && isfinite(cells[i].min)));
            }
        }
    }
    plim__chunk_fini(&chunk);
}

static void read_unpacked(struct plim_str raw)
{
    size_t room = ZSTD_compressBound(raw.n);
    char *packed = malloc(room);
    size_t n = packed != NULL ? ZSTD_compress(packed, room, raw.p, raw.n, 1) : 0;
    if (packed != NULL && !ZSTD_isError(n)) {
        read_chunk((struct plim_str){packed, n});
    }
    free(packed);
}

static void read_rows(struct plim_str bytes)
{
    struct plim__tail tail = {0};
    while (bytes.n > 2) {
        size_t n = (size_t)(uint8_t)bytes.p[0] | (size_t)(uint8_t)bytes.p[1] << 8;
        bytes = plim_str_skip(bytes, 2);
        n = n < bytes.n ? n : bytes.n;
        char *row = malloc(n + 4);
        if (row == NULL) {
            break;
        }
        memcpy(row, bytes.p, n);
        if (n >= 4) {
            uint64_t check = plim_hash_bytes(row, n - 4);
            memcpy(row + n - 4, &check, 4);
        }
        bool good = plim__tail_read(&tail, (struct plim_str){row, n}, NULL) == PLIM_OK;
        free(row);
        if (!good) {
            break;
        }
        DEMAND(tail.slots.n <= PLIM_TAIL_SLOTS);
        bytes = plim_str_skip(bytes, n);
    }
    plim__tail_fini(&tail);
}

/* Everything that `plimsoll history` shows of a file. */
static void read_database(struct plim_str bytes)
{
    static char path[64];
    struct plim_store_options options = {.read_only = true};
    struct plim_store *store = NULL;
    struct plim_err err = {0};
    snprintf(path, sizeof(path), "/tmp/plim-fuzz-history-%ld", (long)getpid());
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        return;
    }
    (void)fwrite(bytes.p, 1, bytes.n, file);
    (void)fclose(file);
    if (plim_store_open(path, &options, &store, &err) == PLIM_OK) {
        for (int i = 0; i < 4; i++) {
            struct plim_buf out = {0};
            struct plim_history_request request = {.path = "h",
                                                   .what = (enum plim_history_what)i,
                                                   .form = (enum plim_history_form)i,
                                                   .points = 200};
            (void)!plim_history_write(&out, store, &request, NULL);
            plim_buf_fini(&out);
        }
        plim_store_close(store);
    } else {
        DEMAND(err.status != PLIM_OK && err.message[0] != '\0');
    }
    (void)unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    struct plim_str rest = {(const char *)data + 1, size - 1};
    switch (data[0]) {
    case 'c':
        read_chunk(rest);
        break;
    case 'u':
        read_unpacked(rest);
        break;
    case 'r':
        read_rows(rest);
        break;
    case 'd':
        read_database(rest);
        break;
    default:
        break;
    }
    return 0;
}
