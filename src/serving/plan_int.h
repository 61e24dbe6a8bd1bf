/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_SERVING_PLAN_INT_H
#define PLIM_SERVING_PLAN_INT_H

/* Internal: the parts of a plan. */

#include "serving/plan.h"

/** plim__plan_play() - one start with `extra` flags behind those of the request (NULL: none). */
PLIM_MUST_USE enum plim_status plim__plan_play(struct plim_arena *arena,
                                               const struct plim_plan_request *request,
                                               const struct plim_card *card, const char *extra,
                                               struct plim_vllm_flags *flags,
                                               struct plim_vllm_start *start, struct plim_err *err);

/** plim__plan_lines() - the amounts, and the ledger's two sums. */
void plim__plan_lines(struct plim_plan *plan);

/** plim__plan_judge() - verdict, margin, limit, why. */
void plim__plan_judge(struct plim_arena *arena, struct plim_plan *plan);

/** plim__plan_changes() - the three cheapest changes. plim__plan_reverse() - the questions that were asked. */
PLIM_MUST_USE enum plim_status plim__plan_changes(struct plim_arena *arena, struct plim_plan *plan,
                                                  struct plim_err *err);
PLIM_MUST_USE enum plim_status plim__plan_reverse(struct plim_arena *arena, struct plim_plan *plan,
                                                  struct plim_err *err);

/** plim__plan_words() - assumptions, what breaks first, the command. */
void plim__plan_words(struct plim_arena *arena, struct plim_plan *plan);

/** plim__plan_room() - requests of `tokens` tokens that the cache holds at once; 0: none. */
double plim__plan_room(const struct plim_vllm_start *start, uint64_t tokens);

/** plim__plan_wanted() - requests in the server at once under the traffic, by Little's law; 0: not known. */
double plim__plan_wanted(const struct plim_plan_traffic *traffic);

#define PLIM_PLAN_SPEED 30.0 /* tokens a second that one request is given, when nobody says */

/** plim__plan_overdrawn() - the cache was ordered, and the amounts exceed the card: the engine looks at neither. */
bool plim__plan_overdrawn(const struct plim_plan *plan);

/** plim__plan_setting_refused() - the engine refuses these settings whatever the memory. */
bool plim__plan_setting_refused(const struct plim_vllm_settings *set);

#endif
