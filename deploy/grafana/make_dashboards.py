#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the dashboards beside this file: make_dashboards.py [FOLDER]

A dashboard is a list of rows of panels; a panel is a title, a kind, a unit, and queries with their legends. A panel
whose figures come only from a source that not every machine has says in `needs` what that is.
The recording rules of ../prometheus/rules.yml must be loaded.
"""

import json
import pathlib
import sys

HERE = 'job=~"plimsoll.*",instance=~"$instance"'
DEVICE = HERE + ',uuid=~"$uuid"'
NAMED = ' * on (job, instance, uuid) group_left (name, device) plimsoll_device_info{' + DEVICE + "}"
ATTACH = "a process that runs under plimsoll record or has called plimsoll.attach()"
ENGINE_LOG = "the log of an engine, by [log NAME] in the settings"
PROBLEM = "Empty while nothing is wrong."

MACHINE = ("plimsoll-machine", "Plimsoll: machine", ["instance", "uuid"], [
    ("Memory", [
        ("Used, of what can be used", "timeseries", "percentunit",
         [(f"instance_uuid:plimsoll_device_memory_used:ratio{{{DEVICE}}}" + NAMED, "{{instance}} {{device}} {{name}}")], ""),
        ("Ledger of the devices", "stacked", "bytes",
         [(f"sum by (process) (plimsoll_process_memory_bytes{{{DEVICE}}})", "{{process}}"),
          (f"sum (plimsoll_device_memory_unknown_bytes{{{DEVICE}}})", "unknown"),
          (f"sum (plimsoll_device_memory_reserved_bytes{{{DEVICE}}})", "driver and firmware"),
          (f"sum (plimsoll_device_memory_free_bytes{{{DEVICE}}})", "free")], ""),
        ("Full in (estimate)", "timeseries", "s",
         [(f'plimsoll_device_full_in_seconds{{{DEVICE},bound="estimate"}}', "{{instance}} {{uuid}}")],
         "memory that grows: while it does not, there is no such time"),
        ("What is wrong", "table", "short",
         [(f"sum by (instance, class, severity, uuid, process) (plimsoll_finding_active{{{HERE}}}) > 0", "")], ""),
    ]),
    ("Processes", [
        ("Largest processes", "timeseries", "bytes",
         [(f"topk(10, plimsoll_process_memory_bytes{{{DEVICE}}})", "{{process}} {{pid}}")], ""),
        ("What processes consist of", "stacked", "bytes",
         [(f"sum by (part) (plimsoll_process_ledger_bytes{{{DEVICE}}})", "{{part}}")], ATTACH),
        ("Allocator: allocated and reserved", "timeseries", "bytes",
         [(f"plimsoll_allocator_allocated_bytes{{{DEVICE}}}", "{{process}} {{pid}} allocated"),
          (f"plimsoll_allocator_reserved_bytes{{{DEVICE}}}", "{{process}} {{pid}} reserved")], ATTACH),
        ("Stranded, of reserved", "timeseries", "percentunit",
         [(f"instance_pid:plimsoll_allocator_stranded:ratio{{{DEVICE}}}", "{{process}} {{pid}}")], ATTACH),
        ("Retries and refusals", "timeseries", "short",
         [(f"increase(plimsoll_allocator_alloc_retries_total{{{DEVICE}}}[$__rate_interval])", "{{process}} {{pid}} retries"),
          (f"increase(plimsoll_allocator_ooms_total{{{DEVICE}}}[$__rate_interval])", "{{process}} {{pid}} refused")], ATTACH),
        ("Outside the allocator, by owner", "stacked", "bytes",
         [(f'sum by (owner) (plimsoll_owner_memory_bytes{{{DEVICE},outside="true"}})', "{{owner}}")], ATTACH),
    ]),
    ("Devices", [
        ("Busy", "timeseries", "percentunit", [(f"plimsoll_device_busy_ratio{{{DEVICE}}}", "{{instance}} {{uuid}}")], ""),
        ("Temperature", "timeseries", "celsius", [(f"plimsoll_device_temperature_celsius{{{DEVICE}}}", "{{instance}} {{uuid}}")], ""),
        ("Power", "timeseries", "watt", [(f"plimsoll_device_power_watts{{{DEVICE}}}", "{{instance}} {{uuid}}")], ""),
        ("What happened", "timeseries", "short",
         [(f"sum by (kind) (increase(plimsoll_happenings_total{{{HERE}}}[$__rate_interval]))", "{{kind}}")], ""),
    ]),
    ("The monitor itself", [
        ("Samples a second", "timeseries", "short",
         [(f"rate(plimsoll_samples_total{{{HERE}}}[$__rate_interval])", "{{instance}} taken"),
          (f"rate(plimsoll_samples_missed_total{{{HERE}}}[$__rate_interval])", "{{instance}} missed")], ""),
        ("Time of a sample, by source", "timeseries", "s",
         [(f"plimsoll_source_duration_seconds{{{HERE}}}", "{{instance}} {{source}}")], ""),
        ("Memory of the monitor", "timeseries", "bytes", [(f"plimsoll_monitor_resident_bytes{{{HERE}}}", "{{instance}}")], ""),
        ("Alerts", "timeseries", "short",
         [(f"plimsoll_alerts_firing{{{HERE}}}", "{{instance}} firing"),
          (f"increase(plimsoll_alerts_sent_total{{{HERE}}}[$__rate_interval])", "{{instance}} sent"),
          (f"increase(plimsoll_alerts_failed_total{{{HERE}}}[$__rate_interval])", "{{instance}} not delivered")], ""),
    ]),
])

FLEET = ("plimsoll-fleet", "Plimsoll: fleet", [], [
    ("Fleet", [
        ("Machines", "stat", "short", [('count(plimsoll_build_info{job=~"plimsoll.*"})', "")], ""),
        ("Devices", "stat", "short", [('count(plimsoll_device_up{job=~"plimsoll.*"})', "")], ""),
        ("Devices that answer", "stat", "short", [('sum(plimsoll_device_up{job=~"plimsoll.*"})', "")], ""),
        ("Memory used", "stat", "percentunit", [('job:plimsoll_device_memory_used:ratio{job=~"plimsoll.*"}', "")], ""),
    ]),
    ("Where to look", [
        ("Fullest devices", "table", "percentunit",
         [("topk(20, instance_uuid:plimsoll_device_memory_used:ratio * on (job, instance, uuid) group_left (name, device) "
           "plimsoll_device_info)", "")], ""),
        ("Least free memory", "table", "bytes", [("bottomk(20, instance:plimsoll_device_memory_free:sum)", "")], ""),
        ("Unlike others of their model", "timeseries", "percentunit",
         [("topk(10, abs(instance_uuid:plimsoll_device_memory_used:deviation))", "{{instance}} {{uuid}}")], ""),
        ("Findings", "stacked", "short", [('sum by (class) (plimsoll_finding_active{job=~"plimsoll.*"})', "{{class}}")], ""),
        ("Memory out soonest", "table", "s",
         [('bottomk(20, min by (instance, uuid, process, class) (plimsoll_finding_oom_in_seconds{bound="estimate"}))', "")],
         "a finding that says when memory is out"),
        ("Versions", "table", "short", [('count by (version) (plimsoll_build_info{job=~"plimsoll.*"})', "")], ""),
    ]),
])

ENGINES = ("plimsoll-engines", "Plimsoll: engines", ["instance"], [
    ("Requests", [
        ("Up", "timeseries", "short", [(f"plimsoll_engine_up{{{HERE}}}", "{{engine}}")], ""),
        ("Running and waiting", "timeseries", "short",
         [(f"plimsoll_engine_requests_running{{{HERE}}}", "{{engine}} running"),
          (f"plimsoll_engine_requests_waiting{{{HERE}}}", "{{engine}} waiting")], ""),
        ("Tokens a second", "timeseries", "short",
         [(f"instance_engine:plimsoll_engine_generation_tokens:rate5m{{{HERE}}}", "{{engine}} generated")], ""),
        ("Requests finished a second", "timeseries", "short",
         [(f"rate(plimsoll_engine_requests_finished_total{{{HERE}}}[$__rate_interval])", "{{engine}}")], ""),
    ]),
    ("KV memory", [
        ("KV pool in use", "timeseries", "percentunit", [(f"plimsoll_engine_kv_usage_ratio{{{HERE}}}", "{{engine}}")], ""),
        ("Preemptions a second", "timeseries", "short",
         [(f"instance_engine:plimsoll_engine_preemptions:rate5m{{{HERE}}}", "{{engine}}")], ""),
        ("Found in the prefix cache", "timeseries", "percentunit",
         [(f"instance_engine:plimsoll_engine_prefix_hit:ratio5m{{{HERE}}}", "{{engine}}")], ""),
        ("Where its memory went", "stacked", "bytes",
         [(f"sum by (engine, component) (plimsoll_engine_component_bytes{{{HERE}}})", "{{engine}} {{component}}")], ENGINE_LOG),
    ]),
])

SIZES = {"stat": (6, 4), "table": (12, 8), "timeseries": (12, 8), "stacked": (12, 8)}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def panel(number, x, y, title, kind, unit, queries, needs):
    width, height = SIZES[kind]
    custom = {"fillOpacity": 60, "stacking": {"mode": "normal"}} if kind == "stacked" else {"fillOpacity": 0}
    table = kind in ("table", "stat")
    return {
        "id": number, "title": title, "type": "timeseries" if kind == "stacked" else kind, "datasource": SOURCE,
        "description": f"Needs {needs}." if needs else PROBLEM if title == "What is wrong" else "",
        "gridPos": {"x": x, "y": y, "w": width, "h": height},
        "fieldConfig": {"defaults": {"unit": unit, "custom": custom if not table else {}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if not table else {},
        "targets": [{"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expr, "legendFormat": legend,
                     "instant": table, "format": "table" if kind == "table" else "time_series"}
                    for i, (expr, legend) in enumerate(queries)],
    }


def variables(names):
    labels = {"instance": "label_values(plimsoll_build_info, instance)",
              "uuid": 'label_values(plimsoll_device_info{instance=~"$instance"}, uuid)'}
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}
    return [source] + [{"name": name, "type": "query", "label": name, "datasource": SOURCE, "query": labels[name],
                        "refresh": 2, "includeAll": True, "multi": True, "allValue": ".*",
                        "current": {"text": "All", "value": "$__all"}} for name in names]


def dashboard(uid, title, names, rows):
    panels, y = [], 0
    for row, contents in rows:
        panels.append({"id": len(panels) + 1, "type": "row", "title": row, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}})
        x, y, deep = 0, y + 1, 0
        for content in contents:
            width, height = SIZES[content[1]]
            if x + width > 24:
                x, y, deep = 0, y + deep, 0
            panels.append(panel(len(panels) + 1, x, y, *content))
            x, deep = x + width, max(deep, height)
        y += deep
    return {"uid": uid, "title": title, "tags": ["plimsoll", "gpu"], "schemaVersion": 38, "version": 1, "editable": True,
            "refresh": "30s", "time": {"from": "now-6h", "to": "now"}, "templating": {"list": variables(names)},
            "panels": panels}


def main(argv):
    where = pathlib.Path(argv[1] if len(argv) > 1 else pathlib.Path(__file__).parent)
    for uid, title, names, rows in (MACHINE, FLEET, ENGINES):
        text = json.dumps(dashboard(uid, title, names, rows), indent=1) + "\n"
        (where / (uid.removeprefix("plimsoll-") + ".json")).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv)
