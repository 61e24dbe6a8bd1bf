/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_REPORT_WEB_ASSETS_H
#define PLIM_REPORT_WEB_ASSETS_H

/* The files of web/, put into the program at build time by tools/embed.py. */

#include "base/str.h"

struct plim_web_assets {
    struct plim_str style;
    struct plim_str script;
    const char *style_sha256; /* base64, for the Content-Security-Policy */
    const char *script_sha256;
};

extern const struct plim_web_assets plim__web_assets;

#endif
