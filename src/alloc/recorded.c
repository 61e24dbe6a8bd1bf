/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of a snapshot; see recorded.h. */

#include "alloc/recorded.h"

bool plim_recorded_conf(const struct plim_snapshot *snapshot, struct plim_torch_version version,
                        struct plim_conf *conf)
{
    const struct plim_settings *s = &snapshot->settings;
    struct plim_str text = plim_intern_str(&snapshot->strings, s->conf);
    plim_conf_init(conf, version);
    if (!s->known || (text.n > 0 && plim_conf_parse(conf, text, NULL) != PLIM_OK)) {
        plim_conf_init(conf, version);
        return false;
    }
    conf->expandable |= s->expandable_segments;
    return true;
}
