/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Replays a corpus through a fuzz target without libFuzzer: each file as it is, cut short at up to CUTS
 * places, and with up to FLIPS bytes changed one at a time. A crash, a sanitizer report or a hang fails the
 * test. One TAP point for each file. Usage: replay_NAME FOLDER
 */

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUTS  64
#define FLIPS 64
#define LARGE (1U << 20) /* bytes; larger files are only replayed as they are */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Give the target exactly n bytes of its own, so that the sanitizer sees a read past the end. */
static void feed(const uint8_t *data, size_t n)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);
    if (copy == NULL) {
        return;
    }
    if (n > 0) {
        memcpy(copy, data, n);
    }
    (void)LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

static void replay(uint8_t *data, size_t n)
{
    feed(data, n);
    if (n > LARGE) {
        return;
    }
    size_t step = n / CUTS + 1;
    for (size_t cut = 0; cut < n; cut += step) {
        feed(data, cut);
    }
    step = n / FLIPS + 1;
    for (size_t at = 0; at < n; at += step) {
        data[at] ^= (uint8_t)(1U << (at % 8));
        feed(data, n);
        data[at] ^= (uint8_t)(1U << (at % 8));
    }
}

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        return 0;
    }
    long n = ftell(file);
    uint8_t *data = n >= 0 ? malloc((size_t)n + 1) : NULL;
    int good = 0;
    if (data != NULL && fseek(file, 0, SEEK_SET) == 0 &&
        fread(data, 1, (size_t)n, file) == (size_t)n) {
        replay(data, (size_t)n);
        good = 1;
    }
    free(data);
    (void)fclose(file);
    return good;
}

static int not_hidden(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    struct dirent **entries = NULL;
    int n = argc == 2 ? scandir(argv[1], &entries, not_hidden, alphasort) : -1;
    int failed = n <= 0;
    for (int i = 0; i < n; i++) {
        char path[4096];
        (void)snprintf(path, sizeof(path), "%s/%s", argv[1], entries[i]->d_name);
        int good = replay_file(path);
        failed |= !good;
        printf("%s %d - %s\n", good ? "ok" : "not ok", i + 1, entries[i]->d_name);
        (void)fflush(stdout);
        free(entries[i]);
    }
    free(entries);
    if (n <= 0) {
        printf("not ok 1 - the corpus has files\n");
    }
    printf("1..%d\n", n > 0 ? n : 1);
    return failed;
}
