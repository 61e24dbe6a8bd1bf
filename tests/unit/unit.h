/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_TESTS_UNIT_H
#define PLIM_TESTS_UNIT_H

/* What every unit test includes first: cmocka and the headers it needs before it. */

/* cmocka needs its own header last. */
/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "base/err.h"
#include "base/num.h"

/* Run a test group named `name` with TAP output; the value of main. */
#define PLIM_RUN_TESTS(name, tests)                                                                \
    (cmocka_set_message_output(CM_OUTPUT_TAP), cmocka_run_group_tests_name(name, tests, NULL, NULL))

#define assert_ok(expr) assert_int_equal((expr), PLIM_OK)

#endif
