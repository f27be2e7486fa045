# SPDX-License-Identifier: Apache-2.0
"""What docs/troubleshooting.md quotes as texts of the programs are texts of the programs."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

report = meta.Report()
FOLDERS = ("base", "daemon", "client", "devices", "graphs", "scheduler")


def sources():
    """Returns the string literals of the programs, those that follow one another joined."""
    text = ""
    for folder in FOLDERS:
        for at, _, files in os.walk(os.path.join(meta.TOP, folder)):
            for name in sorted(files):
                if name.endswith((".c", ".h", ".def")):
                    with open(os.path.join(at, name), encoding="utf-8") as f:
                        text += f.read()
    return re.sub(r'"\s*\n\s*"', "", text)


def unknown(page, text):
    symptoms = re.findall(r"^\| `([^`]+)`", page, re.M)
    return [f"no program says: {s}" for s in symptoms if s not in text] if len(symptoms) > 10 else ["no symptoms were found"]


page, text = meta.read("docs/troubleshooting.md"), sources()
report.check("each_text_that_the_page_quotes_is_in_the_sources", unknown(page, text))
report.check("a_text_that_no_program_has_is_reported",
             [] if unknown(page.replace("`needs a restart`", "`needs a miracle`"), text) == ["no program says: needs a miracle"] else ["it is not"])
report.end()
