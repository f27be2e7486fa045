# SPDX-License-Identifier: Apache-2.0
"""Hosted CI runs each step of .ci/run once."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

WORKFLOW = ".github/workflows/ci.yml"
report = meta.Report()
if not os.path.exists(os.path.join(meta.TOP, WORKFLOW)):
    report.skip("hosted_ci_runs_each_step_once", f"{WORKFLOW} is not distributed")
    report.end()
text = meta.read(WORKFLOW)
steps = re.findall(r"^step ([\w-]+) ", meta.read(".ci/run"), re.M)
dealt = re.search(r"^ +steps:\n((?: +- [\w -]+\n)+)", text, re.M)
names = dealt[1].replace(" - ", " ").split() if dealt else []
report.check("hosted_ci_runs_each_step_once",
             [f"{s}: {names.count(s)} times" for s in steps if names.count(s) != 1]
             + [f"{n}: no step of .ci/run" for n in names if n not in steps], f"the list is matrix.steps in {WORKFLOW}")
try:
    import yaml
except ImportError:
    report.skip("workflow_is_yaml", "python3-yaml is not installed")
else:
    try:
        jobs = yaml.safe_load(text)["jobs"]
        report.check("workflow_is_yaml", [f"{name}: has no steps" for name, job in jobs.items() if not job.get("steps")])
    except (yaml.YAMLError, KeyError, TypeError) as error:
        report.check("workflow_is_yaml", [f"{WORKFLOW}: {error}"])
report.end()
