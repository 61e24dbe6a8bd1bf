/* SPDX-License-Identifier: Apache-2.0 */
/* The words of gate.h's tables. */

#include <plimsoll/gate.h>

#define WORD_AT(words, i) ((i) < sizeof(words) / sizeof *(words) ? (words)[i] : "unknown")

static const char *const verdicts[] = {
#define PLIMSOLL__X(name, number, word) [number] = (word),
    PLIMSOLL_GATE_VERDICT_MAP(PLIMSOLL__X)
#undef PLIMSOLL__X
};

static const struct {
    const char *word;
    uint32_t http;
    const char *code, *message;
} reasons[] = {
#define PLIMSOLL__X(name, number, word, http, code, message) {word, http, code, message},
    PLIMSOLL_GATE_REASON_MAP(PLIMSOLL__X)
#undef PLIMSOLL__X
};

static const char *const policies[] = {
#define PLIMSOLL__X(name, number, word, meaning) [number] = (word),
    PLIMSOLL_GATE_POLICY_MAP(PLIMSOLL__X)
#undef PLIMSOLL__X
};

static const char *const outcomes[] = {
#define PLIMSOLL__X(name, number, word) [number] = (word),
    PLIMSOLL_GATE_OUTCOME_MAP(PLIMSOLL__X)
#undef PLIMSOLL__X
};

const char *plimsoll_gate_code_text(int code)
{
    static const char *const texts[] = {
#define PLIMSOLL__X(name, number, text) [number] = (text),
        PLIMSOLL_GATE_CODE_MAP(PLIMSOLL__X)
#undef PLIMSOLL__X
    };
    return code < 0 ? "unknown" : WORD_AT(texts, (unsigned)code);
}

const char *plimsoll_gate_verdict_text(uint32_t verdict)
{
    return WORD_AT(verdicts, verdict);
}

const char *plimsoll_gate_reason_text(uint32_t reason)
{
    return reason < PLIMSOLL_GATE_REASONS ? reasons[reason].word : "unknown";
}

uint32_t plimsoll_gate_reason_http(uint32_t reason)
{
    return reason < PLIMSOLL_GATE_REASONS ? reasons[reason].http : 500;
}

const char *plimsoll_gate_reason_code(uint32_t reason)
{
    return reason < PLIMSOLL_GATE_REASONS ? reasons[reason].code : "";
}

const char *plimsoll_gate_reason_message(uint32_t reason)
{
    return reason < PLIMSOLL_GATE_REASONS ? reasons[reason].message : "";
}

const char *plimsoll_gate_policy_text(uint32_t policy)
{
    return WORD_AT(policies, policy);
}

const char *plimsoll_gate_outcome_text(uint32_t outcome)
{
    return WORD_AT(outcomes, outcome);
}
