/* SPDX-License-Identifier: Apache-2.0 */

/* Stands for the recorder where a test's program writes its events itself. */

int plimsoll_test_nothing(void);

int plimsoll_test_nothing(void)
{
    return 0;
}
