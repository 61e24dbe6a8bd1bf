/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_FORMAT_MAGIC_H
#define PLIM_FORMAT_MAGIC_H

/* What a file is, by its first bytes: a snapshot in some wrapping, or something else with a name. */

#include "base/err.h"

#define PLIM_HEAD_BYTES 4096u /* that are looked at */

enum plim_content_kind {
    PLIM_CONTENT_PICKLE,
    PLIM_CONTENT_JSON,
    PLIM_CONTENT_TRACE, /* of plimsoll record */
    PLIM_CONTENT_GZIP,
    PLIM_CONTENT_ZSTD,
    PLIM_CONTENT_XZ,
    PLIM_CONTENT_HTML,
    PLIM_CONTENT_OTHER, /* refused */
};

/**
 * plim__magic() - the kind of content that begins with these n bytes.
 * For OTHER, *err says what it is instead and what to do (PLIM_E_DATA).
 */
enum plim_content_kind plim__magic(const uint8_t *p, size_t n, struct plim_err *err);

#endif
