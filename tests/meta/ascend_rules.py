# SPDX-License-Identifier: Apache-2.0
"""What docs/devices/ascend.md says of chips and versions is what the tables say; each rule names its source."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

report = meta.Report()
table = meta.read("devices/ascend/operator_rules.def")
page = meta.read("docs/devices/ascend.md")
section = page.split("## Chips and versions\n", 1)[-1].split("\n## ", 1)[0]
rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]


def cells(name):
    """Returns the row of a table that begins with the name, or an empty one."""
    return next((row for row in rows if row[0] == name), ["", "", ""])


chips = re.findall(r'^NGD_CHIP\((\w+), "[^"]*", "([^"]*)", "([^"]*)"\)', meta.read("devices/ascend/chips.def"), re.M)
report.check("chips_are_in_the_table",
             [f"{name}: the table has no row" for _, name, _ in chips if not cells(name)[0]] +
             [f"{name}: the row lacks \"{why}\"" for _, name, why in chips if why and why not in cells(name)[1]],
             "docs/devices/ascend.md, Chips and versions; devices/ascend/chips.def")

# Operators that a whole chip lacks, in all versions or in old ones.
rules = re.findall(r"^NGD_OPERATOR_RULE\((\w+), (\w+), ON_(\w+), INNER_KERNEL, ", table, re.M)
names = {chip: name for chip, name, _ in chips}
made = {"RotaryPositionEmbedding": "npu.rotary_mul", "ScatterPaKvCache": "npu.scatter_pa_kv_cache"}
lacking = []
for function, _, chip in rules:
    text = cells(f"`{made[function]}`")[2] if function in made else cells(names[chip])[2]
    if (names[chip] if function in made else f"`aclnn{function}`") not in text:
        lacking.append(f"aclnn{function} is missing on {names[chip]}")
report.check("operators_that_a_chip_lacks_are_named", lacking + ([] if rules else ["no rule was found"]))

newer = re.findall(r'^NGD_ACLNN\((\w+), .*\), "([\d.]+)", "([^"]*)"\)$',
                   meta.read("devices/ascend/aclnn_symbols.def"), re.M)
report.check("functions_that_a_version_lacks_are_in_the_table",
             [f"aclnn{name}: not a row \"{since} | {instead}\"" for name, since, instead in newer
              if since != "8.1" and instead and cells(f"`aclnn{name}`")[1:] != [since, instead]])

sources = re.findall(r'^(NGD_OPERATOR_\w+\(\w+, .*), "([^"]*)"\)$', table, re.M)
without = len(re.findall(r"^NGD_OPERATOR_", table, re.M)) - len(sources)
report.check("each_rule_names_a_public_source",
             [f"{row[:60]}...: {source}" for row, source in sources
              if not re.match(r"(OM|ON|OT|OL) [\w/]+|C81 ", source)] +
             ([f"{without} rows have no source"] if without else []))
report.end()
