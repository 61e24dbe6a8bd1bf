/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: what incidents read from strangers. The first byte says what the rest is:
 *
 *   a  a tar archive (packed here): read to its end or refused; names stay in one folder
 *   t  text: cleaning it a second time changes nothing
 *   p  a pickle: masking keeps its length and never touches what stands between strings
 *   s  a line of samples: written again and read again it is the same; its books come out
 */

#include "device/sample_json.h"
#include "incident/archive.h"
#include "incident/redact.h"

#include <stdlib.h>
#include <zstd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void read_archive(const char *p, size_t n)
{
    struct plim_source_bytes state;
    struct plim_archive archive;
    char part[512];
    size_t room = ZSTD_compressBound(n), got;
    char *packed = malloc(room);
    size_t length = packed != NULL ? ZSTD_compress(packed, room, p, n, 1) : 0;
    if (packed == NULL || ZSTD_isError(length) ||
        plim_archive_from(plim_source_bytes(&state, (struct plim_str){packed, length}), &archive,
                          NULL) != PLIM_OK) {
        free(packed);
        return;
    }
    bool more = true;
    while (plim_archive_next(&archive, &more, NULL) == PLIM_OK && more) {
        must(archive.name[0] != '\0' && strchr(archive.name, '/') == NULL &&
             archive.name[0] != '.');
        must(plim_archive_read(&archive, part, sizeof(part), &got, NULL) != PLIM_OK ||
             got <= archive.size);
    }
    plim_archive_close(&archive);
    free(packed);
}

static void clean_text(struct plim_redactor *r, const char *p, size_t n)
{
    struct plim_buf once = {0}, twice = {0};
    plim_redact_text(r, "f", (struct plim_str){p, n}, &once);
    plim_redact_text(r, "f", plim_buf_str(&once), &twice);
    must(once.failed || twice.failed || plim_str_eq(plim_buf_str(&once), plim_buf_str(&twice)));
    plim_buf_fini(&once);
    plim_buf_fini(&twice);
}

static void mask_pickle(struct plim_redactor *r, const char *p, size_t n)
{
    char *copy = malloc(n + 1), *again = malloc(n + 1);
    if (copy != NULL && again != NULL) {
        memcpy(copy, p, n);
        enum plim_status st = plim_redact_pickle(r, "f", copy, n, NULL);
        memcpy(again, copy, n);
        /* What was masked is a pickle of the same shape, and masked already. */
        must(st != PLIM_OK || (plim_redact_pickle(r, "f", again, n, NULL) == PLIM_OK));
    }
    free(copy);
    free(again);
}

static void read_samples(const char *p, size_t n)
{
    struct plim_sample sample = {0}, back = {0};
    struct plim_buf once = {0}, twice = {0};
    if (plim_sample_parse((struct plim_str){p, n}, &sample, NULL) == PLIM_OK) {
        plim_sample_write(&once, &sample);
        must(plim_sample_parse(plim_buf_str(&once), &back, NULL) == PLIM_OK);
        plim_sample_write(&twice, &back);
        must(plim_str_eq(plim_buf_str(&once), plim_buf_str(&twice)));
        plim_vec_foreach (d, &sample.devices) {
            d->parent = PLIM_NO_PARENT; /* of a stranger: may point anywhere */
        }
        plim_sample_balance(&sample);
        must(plim_sample_check(&sample));
    }
    plim_sample_fini(&sample);
    plim_sample_fini(&back);
    plim_buf_fini(&once);
    plim_buf_fini(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plim_arena arena;
    if (size == 0) {
        return 0;
    }
    plim_arena_init(&arena, UINT64_C(1) << 26);
    struct plim_redactor r = {
        .arena = &arena,
        .identity = {.user = {"annika"}, .host = {"gpu17"}, .project = "/home/annika/p"}};
    const char *p = (const char *)data + 1;
    switch (data[0]) {
    case 'a':
        read_archive(p, size - 1);
        break;
    case 't':
        clean_text(&r, p, size - 1);
        break;
    case 'p':
        mask_pickle(&r, p, size - 1);
        break;
    case 's':
        read_samples(p, size - 1);
        break;
    default:
        break;
    }
    plim_redactor_fini(&r);
    plim_arena_fini(&arena);
    return 0;
}
