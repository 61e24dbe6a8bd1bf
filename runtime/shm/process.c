/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who a process is. The line of /proc/<pid>/stat is "pid (name) state ppid ...": the name may hold
 * anything, brackets and blanks too, so fields are counted behind the last bracket.
 */

#include "process.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

char *plim__shm_put_number(char *at, uint64_t value)
{
    char digits[21];
    int n = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    while (n > 0) {
        *at++ = digits[--n];
    }
    *at = '\0';
    return at;
}

char *plim__shm_put_text(char *at, char *end, const char *text)
{
    while (at < end && *text != '\0') {
        *at++ = *text++;
    }
    *at = '\0';
    return at;
}

const char *plim__shm_number(const char *at, uint64_t *value)
{
    const char *begin = at;
    *value = 0;
    for (; *at >= '0' && *at <= '9' && at - begin < 19; at++) { /* 19 digits fit */
        *value = *value * 10 + (uint64_t)(*at - '0');
    }
    return at > begin ? at : NULL;
}

uint64_t plim__shm_start_ticks(uint32_t pid, bool *dead)
{
    char path[48];
    if (pid == 0) {
        (void)strcpy(path, "/proc/self/stat");
    } else {
        char *at = plim__shm_put_number(stpcpy(path, "/proc/"), pid);
        (void)strcpy(at, "/stat");
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    char line[1024];
    ssize_t n = read(fd, line, sizeof line - 1);
    (void)close(fd);
    if (n <= 0) {
        return 0;
    }
    line[n] = '\0';
    const char *at = strrchr(line, ')');
    if (at == NULL || at[1] != ' ') {
        return 0;
    }
    at += 2; /* field 3, the state */
    if (dead != NULL) {
        *dead = *at == 'Z' || *at == 'X' || *at == 'x';
    }
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (at == NULL) {
            return 0;
        }
        at++;
    }
    uint64_t ticks;
    return plim__shm_number(at, &ticks) != NULL ? ticks : 0;
}
