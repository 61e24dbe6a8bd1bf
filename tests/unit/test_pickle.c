/* SPDX-License-Identifier: Apache-2.0 */
/* The pickle machine: what it executes, what it refuses, and where it says so. */

#include "format/pickle.h"
#include "format/pickle_ops.h"
#include "reading.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

/* A snapshot of one segment, as text opcodes: "..." is what stands for its address. */
#define SEGMENT(address)                                                                           \
    "(dS'total_size'\nI512\nsS'address'\n" address "sS'blocks'\n(l(dS'size'\nI512\nsS'state'\n"    \
    "S'inactive'\nsas"
#define ONE_SEGMENT(address) PLIM_STR("(l" SEGMENT(address) "a.")

static uint64_t address_of(struct plim_str bytes)
{
    struct plim_snapshot s;
    struct plim_err err;
    assert_ok(read_snapshot(bytes, &s, &err));
    assert_int_equal(s.devices.n, 1);
    assert_int_equal(s.devices.items[0].heap.segments.n, 1);
    uint64_t addr = s.devices.items[0].heap.segments.items[0].addr;
    assert_int_equal(s.devices.items[0].heap.blocks.items[0].addr, addr);
    assert_int_equal(s.findings.n, 0);
    plim_snapshot_fini(&s);
    return addr;
}

static void every_form_of_an_integer_is_exact(void **state)
{
    (void)state;
    assert_int_equal(address_of(ONE_SEGMENT("I4096\n")), 4096);
    assert_int_equal(address_of(ONE_SEGMENT("L4096L\n")), 4096);
    assert_int_equal(address_of(ONE_SEGMENT("L4096\n")), 4096);
    assert_int_equal(address_of(ONE_SEGMENT("K\x80")), 128);
    assert_int_equal(address_of(ONE_SEGMENT("M\x01\xff")), 0xff01);
    assert_int_equal(address_of(ONE_SEGMENT("J\x01\x02\x03\x04")), 0x04030201);
    assert_int_equal(address_of(ONE_SEGMENT("\x8a\x00")), 0);
    assert_int_equal(address_of(ONE_SEGMENT("\x8a\x03\x01\x02\x03")), 0x030201);
    assert_int_equal(address_of(ONE_SEGMENT("\x8b\x02\0\0\0\x01\x02")), 0x0201);
    assert_int_equal(address_of(ONE_SEGMENT("G\x40\x60\0\0\0\0\0\0")), 128);
    assert_int_equal(address_of(ONE_SEGMENT("F128.0\n")), 128);
}

static void addresses_with_the_top_bit_set_are_read(void **state)
{
    (void)state;
    uint64_t want = UINT64_C(0xfffff00000000000);
    assert_int_equal(address_of(ONE_SEGMENT("\x8a\x09\0\0\0\0\0\xf0\xff\xff\0")), want);
    assert_int_equal(address_of(ONE_SEGMENT("L18446726481523507200L\n")), want);
    assert_int_equal(address_of(ONE_SEGMENT("\x8a\x0a\0\0\0\0\0\xf0\xff\xff\0\0")), want);
}

static void opcodes_that_could_call_code_are_refused_with_their_offset(void **state)
{
    (void)state;
    static const struct {
        unsigned char op;
        const char *name;
    } code[] = {{'c', "GLOBAL"},       {'R', "REDUCE"}, {'i', "INST"},      {'o', "OBJ"},
                {'b', "BUILD"},        {'P', "PERSID"}, {'Q', "BINPERSID"}, {0x81, "NEWOBJ"},
                {0x82, "EXT1"},        {0x83, "EXT2"},  {0x84, "EXT4"},     {0x92, "NEWOBJ_EX"},
                {0x93, "STACK_GLOBAL"}};
    for (size_t i = 0; i < PLIM_COUNT_OF(code); i++) {
        char bytes[] = "\x80\x04]]?os\nsystem\n.";
        struct plim_err err;
        bytes[4] = (char)code[i].op;
        assert_int_equal(status_of((struct plim_str){bytes, sizeof(bytes) - 1}, &err),
                         PLIM_E_UNSAFE);
        assert_int_equal(err.pos, 4);
        assert_non_null(strstr(err.message, code[i].name));
        assert_true(err.hint[0] != '\0');
    }
}

static void a_code_opcode_without_protocol_is_refused_too(void **state)
{
    (void)state;
    struct plim_err err;
    assert_int_equal(status_of(PLIM_STR("cos\nsystem\n(S'id'\ntR."), &err), PLIM_E_UNSAFE);
    assert_int_equal(err.pos, 0);
    assert_int_equal(status_of(PLIM_STR("(cos\nsystem\nS'id'\no."), &err), PLIM_E_UNSAFE);
    assert_int_equal(err.pos, 1);
    assert_int_equal(status_of(PLIM_STR("(S'id'\nios\nsystem\n."), &err), PLIM_E_UNSAFE);
    assert_int_equal(err.pos, 7);
}

static void bytes_that_are_no_opcodes_are_errors(void **state)
{
    (void)state;
    for (unsigned op = 0; op < 256; op++) {
        char bytes[] = "\x80\x04]?";
        struct plim_err err;
        if (plim__pickle_op_name(op)) {
            continue;
        }
        bytes[3] = (char)op;
        assert_int_equal(status_of((struct plim_str){bytes, 4}, &err), PLIM_E_DATA);
        assert_int_equal(err.pos, 3);
    }
}

static void no_opcode_alone_breaks_the_stack(void **state)
{
    (void)state;
    for (unsigned op = 0; op < 256; op++) {
        for (unsigned before = 0; before < 256; before++) {
            char bytes[] = "\x80\x04??\0\0\0\0\0\0\0\0\0\n.";
            struct plim_err err;
            bytes[2] = (char)before;
            bytes[3] = (char)op;
            enum plim_status st = status_of((struct plim_str){bytes, sizeof(bytes) - 1}, &err);
            assert_true(st == PLIM_OK || err.message[0]);
        }
    }
}

static void announced_lengths_cost_nothing_until_bytes_arrive(void **state)
{
    (void)state;
    struct plim_err err;
    assert_int_equal(status_of(PLIM_STR("\x80\x02}X\xff\xff\xff\x7f"
                                        "abc"),
                               &err),
                     PLIM_E_BUDGET);
    assert_int_equal(err.pos, 3);
    assert_int_equal(status_of(PLIM_STR("\x80\x02}X\x00\x00\x00\x03"
                                        "abc"),
                               &err),
                     PLIM_E_TRUNCATED);
    assert_int_equal(status_of(PLIM_STR("\x80\x04\x8d\0\0\0\0\0\0\0\x10"
                                        "abc"),
                               &err),
                     PLIM_E_BUDGET);
    assert_int_equal(status_of(PLIM_STR("\x80\x04\x8b\xff\xff\xff\xff"), &err), PLIM_E_DATA);
    assert_int_equal(status_of(PLIM_STR("\x80\x04\x8b\xff\xff\xff\x7f"), &err), PLIM_E_BUDGET);
}

static void memo_keys_far_out_are_kept_without_a_table(void **state)
{
    (void)state;
    assert_int_equal(address_of(PLIM_STR(
                         "(lr\xff\xff\xff\xff" SEGMENT("I7\nr\xff\xff\xff\x7f") "aj\xff\xff\xff\xff"
                                                                                "0.")),
                     7);
}

static void a_memo_entry_that_was_never_put_is_an_error(void **state)
{
    (void)state;
    struct plim_err err;
    assert_int_equal(status_of(PLIM_STR("\x80\x04h\x05."), &err), PLIM_E_DATA);
    assert_int_equal(err.pos, 2);
    assert_non_null(strstr(err.message, "memo"));
    assert_int_equal(status_of(PLIM_STR("\x80\x04}r\x10\0\0\0h\x05."), &err), PLIM_E_DATA);
}

/* A pickle of n bytes of `op` between a head and a tail. */
static enum plim_status repeated(const char *head, char op, size_t n, const char *tail,
                                 struct plim_err *err)
{
    size_t a = strlen(head), z = strlen(tail);
    char *bytes = malloc(a + n + z);
    assert_non_null(bytes);
    memcpy(bytes, head, a);
    memset(bytes + a, op, n);
    memcpy(bytes + a + n, tail, z);
    enum plim_status st = status_of((struct plim_str){bytes, a + n + z}, err);
    free(bytes);
    return st;
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    struct plim_err err;
    assert_int_equal(repeated("\x80\x04", '(', 100000, ".", &err), PLIM_E_BUDGET);
    char tail[1001];
    memset(tail, 'a', 999);
    tail[999] = '.';
    tail[1000] = '\0';
    assert_int_equal(repeated("\x80\x04", ']', 1000, tail, &err), PLIM_E_BUDGET);
    assert_non_null(strstr(err.message, "nested"));
}

static void small_files_cannot_ask_for_much_memory(void **state)
{
    (void)state;
    struct plim_err err;
    assert_int_equal(repeated("\x80\x04", '}', 6000000, ".", &err), PLIM_E_BUDGET);
    assert_int_equal(repeated("\x80\x04N", '2', 6000000, ".", &err), PLIM_E_BUDGET);
    assert_non_null(strstr(err.message, "memory"));
}

static void what_contains_itself_is_refused(void **state)
{
    (void)state;
    struct plim_err err;
    assert_int_equal(status_of(PLIM_STR("\x80\x04]\x94h\x00"
                                        "a."),
                               &err),
                     PLIM_E_DATA);
    assert_non_null(strstr(err.message, "itself"));
    assert_int_equal(status_of(PLIM_STR("\x80\x04]\x94(h\x00h\x00"
                                        "e."),
                               &err),
                     PLIM_E_DATA);
    /* {'segments': [], 'x': <the dict>}, then through a list in between */
    assert_int_equal(status_of(PLIM_STR("\x80\x04}\x94\x8c\x01xh\x00s."), &err), PLIM_E_DATA);
    assert_int_equal(status_of(PLIM_STR("\x80\x04}\x94(\x8c\x08segments]\x8c\x01x](K\x01h\x00"
                                        "eu."),
                               &err),
                     PLIM_E_DATA);
    assert_non_null(strstr(err.message, "itself"));
}

static void stacks_without_what_is_needed_are_errors(void **state)
{
    (void)state;
    static const char *const broken[] = {"a",
                                         "e",
                                         "u",
                                         "s",
                                         "t",
                                         "l",
                                         "d",
                                         "1",
                                         "0",
                                         "2",
                                         "\x94",
                                         "q\x01",
                                         "\x85",
                                         "\x86",
                                         "\x87",
                                         "(u",
                                         "(e",
                                         "}(K\x01u",
                                         "K\x01K\x02"
                                         "a",
                                         "K\x01K\x02K\x03s",
                                         "](}s",
                                         "."};
    for (size_t i = 0; i < PLIM_COUNT_OF(broken); i++) {
        char bytes[32];
        struct plim_err err;
        int n = snprintf(bytes, sizeof(bytes), "\x80\x04%s.", broken[i]);
        assert_int_equal(status_of((struct plim_str){bytes, (size_t)n}, &err), PLIM_E_DATA);
        assert_true(err.pos >= 2 && err.pos < (uint64_t)n);
    }
}

static void a_list_that_changes_after_its_use_is_refused(void **state)
{
    (void)state;
    struct plim_err err;
    /* event = {'action': 'alloc', 'frames': F}; F.append(frame) */
    struct plim_str late =
        PLIM_STR("\x80\x04](}\x94(\x8c\x06"
                 "action\x8c\x05"
                 "alloc\x8c\x06"
                 "frames](}(\x8c\x04"
                 "lineK\x01"
                 "\x8c\x04nameK\x02ue\x94uh\x01}(\x8c\x04lineK\x02\x8c\x04nameK\x02ua.");
    assert_int_equal(status_of(late, &err), PLIM_E_UNSUPPORTED);
    assert_non_null(strstr(err.message, "after it was used"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_an_integer_is_exact),
        cmocka_unit_test(addresses_with_the_top_bit_set_are_read),
        cmocka_unit_test(opcodes_that_could_call_code_are_refused_with_their_offset),
        cmocka_unit_test(a_code_opcode_without_protocol_is_refused_too),
        cmocka_unit_test(bytes_that_are_no_opcodes_are_errors),
        cmocka_unit_test(no_opcode_alone_breaks_the_stack),
        cmocka_unit_test(announced_lengths_cost_nothing_until_bytes_arrive),
        cmocka_unit_test(memo_keys_far_out_are_kept_without_a_table),
        cmocka_unit_test(a_memo_entry_that_was_never_put_is_an_error),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(small_files_cannot_ask_for_much_memory),
        cmocka_unit_test(what_contains_itself_is_refused),
        cmocka_unit_test(stacks_without_what_is_needed_are_errors),
        cmocka_unit_test(a_list_that_changes_after_its_use_is_refused),
    };
    return PLIM_RUN_TESTS("pickle", tests);
}
