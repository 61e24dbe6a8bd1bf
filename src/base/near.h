/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_NEAR_H
#define PLIM_BASE_NEAR_H

/* What a mistyped word may have meant: words are near by changed, missing, surplus or swapped letters. */

#define PLIM_NEAR_MAX 31u /* not near; longer words are not compared */

/**
 * plim_near() - how unlike a name a mistyped word is, 0 for its beginning; PLIM_NEAR_MAX when more than a
 * third of the letters differ, so that it is not worth suggesting.
 * Optimal string alignment distance; O(|word| |name|), at most PLIM_NEAR_MAX letters each.
 */
unsigned plim_near(const char *word, const char *name);

#endif
