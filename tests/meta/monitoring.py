# SPDX-License-Identifier: Apache-2.0
"""The dashboard and the alert rules of examples/monitoring: their metrics exist, and promtool's tests of the rules pass."""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

PLACE = "examples/monitoring"
report = meta.Report()
names = {("npugraphd_" + name, kind) for kind, name in re.findall(r'^NGD_METRIC\(\w+, (\w+), "(\w+)"', meta.read("base/metrics.def"), re.M)}
known = {name for name, _ in names} | {name + part for name, kind in names if kind == "HISTOGRAM" for part in ("_bucket", "_sum", "_count")}
known |= {"npugraphd_device_" + name for name in re.findall(r'^NGD_TELEMETRY\(\w+, "(\w+)"', meta.read("devices/telemetry.def"), re.M)}

used = {(path, name) for path in (f"{PLACE}/alerts.yml", f"{PLACE}/alerts_test.yml", f"{PLACE}/dashboard.json")
        for name in re.findall(r"\bnpugraphd_\w+", meta.read(path))}
report.check("metrics_of_dashboard_and_alerts_exist", [f"{path}: {name}" for path, name in sorted(used) if name not in known])

board = json.loads(meta.read(f"{PLACE}/dashboard.json"))
panels = board["panels"]
report.check("panels_have_numbers_of_their_own_and_do_not_overlap",
             [p["title"] for i, p in enumerate(panels) for q in panels[:i] if p["id"] == q["id"] or
              all(p["gridPos"][at] < q["gridPos"][at] + q["gridPos"][size] and q["gridPos"][at] < p["gridPos"][at] + p["gridPos"][size]
                  for at, size in (("x", "w"), ("y", "h")))])

alerts = re.findall(r"- alert: (\w+)", meta.read(f"{PLACE}/alerts.yml"))
tested = re.findall(r'alertname="(\w+)"', meta.read(f"{PLACE}/alerts_test.yml"))
report.check("each_alert_is_tested", sorted(set(alerts) ^ set(tested)))
if shutil.which("promtool"):
    run = subprocess.run(["promtool", "test", "rules", os.path.join(meta.TOP, PLACE, "alerts_test.yml")], capture_output=True, text=True, check=False)
    report.check("promtool_tests_of_the_alerts_pass", [] if run.returncode == 0 else (run.stdout + run.stderr).strip().split("\n"))
else:
    print("skip - promtool tests of the alerts: promtool is not installed (Debian: prometheus)")
report.end()
