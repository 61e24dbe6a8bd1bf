/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 and HMAC: published values of FIPS 180-4's examples and of RFC 4231. */

#include "base/sha256.h"
#include "unit.h"

static void digests_are_those_of_the_standard(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *digest;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        uint8_t digest[PLIM_SHA256_BYTES];
        char hex[PLIM_SHA256_HEX];
        plim_sha256(plim_str_from(cases[i].text), digest);
        assert_string_equal(plim_sha256_hex(hex, digest), cases[i].digest);
    }
}

static void signatures_are_those_of_rfc_4231(void **state)
{
    (void)state;
    char long_key[131];
    memset(long_key, 0xaa, sizeof(long_key));
    const struct {
        struct plim_str key;
        const char *text;
        const char *digest;
    } cases[] = {
        {PLIM_STR("Jefe"), "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {{long_key, sizeof(long_key)},
         "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
    };
    for (size_t i = 0; i < PLIM_COUNT_OF(cases); i++) {
        uint8_t digest[PLIM_SHA256_BYTES];
        char hex[PLIM_SHA256_HEX];
        plim_hmac_sha256(cases[i].key, plim_str_from(cases[i].text), digest);
        assert_string_equal(plim_sha256_hex(hex, digest), cases[i].digest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_are_those_of_the_standard),
        cmocka_unit_test(signatures_are_those_of_rfc_4231),
    };
    return PLIM_RUN_TESTS("sha256", tests);
}
