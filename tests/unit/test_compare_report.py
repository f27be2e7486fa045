# SPDX-License-Identifier: Apache-2.0
"""The table and the picture of bench/compare: medians, ratios, what is missing, and well-formed SVG."""
import os
import sys
import xml.etree.ElementTree as ElementTree

TOP = os.path.abspath(os.environ.get("top_srcdir") or os.path.join(os.path.dirname(__file__), "..", ".."))
sys.dont_write_bytecode = True  # the source tree may be read-only
sys.path[:0] = [os.path.join(TOP, "tests", "meta"), os.path.join(TOP, "bench", "compare")]
import meta
import report as compare

report = meta.Report()


def result(engine, variant, turns, why=None):
    return {"engine": engine, "variant": variant, "version": "1.0", "why": why, "check": "logits agree", "turns": turns}


results = [
    result("npugraphd", "bf16", [{"prompt": 80.0, "1": 17.0}, {"prompt": 70.0, "1": 19.0}, {"prompt": 90.0, "1": 18.0}]),
    result("llama.cpp", "bf16", [{"prompt": 40.0, "1": 12.0}]),
    result("llama.cpp", "f16", [{"prompt": 160.0, "1": 9.0}]),
    result("OpenVINO", "bf16", [], "pip failed"),
]


def differs(got, wanted):
    return [] if got == wanted else [f"got {got!r}, wanted {wanted!r}"]


lines = compare.table(results, 512).splitlines()
report.check("table_has_a_row_for_each_measured_result", differs(len(lines), 6))
report.check("cell_is_the_median_with_least_and_most",
             differs(lines[2], "| npugraphd, bf16 | 80.0 (70.0..90.0) | 18.0 (17.0..19.0) |"))
report.check("ratio_is_to_the_fastest_other_of_each_column",
             differs(lines[-1], "| npugraphd / the best other | 0.50 (llama.cpp) | 1.50 (llama.cpp) |"))
report.check("summary_has_the_fastest_variant_of_each_column",
             differs(compare.summary(results, 512).splitlines()[3], "| llama.cpp | 160 | 12.0 |"))
report.check("notes_say_why_something_is_missing",
             differs(compare.notes(results).splitlines()[-1], "- OpenVINO, bf16: not measured: pip failed"))
report.check("columns_are_in_the_order_of_numbers",
             differs(compare.columns([result("npugraphd", "bf16", [{"32": 1, "4": 1, "prompt": 1}])]), ["prompt", "4", "32"]))

svg = ElementTree.fromstring(compare.picture(results, 512, "Tokens < per second"))
texts = [e.text for e in svg.iter("{http://www.w3.org/2000/svg}text")]
bars = list(svg.iter("{http://www.w3.org/2000/svg}path"))
report.check("picture_has_a_bar_for_each_engine_and_column", differs(len(bars), 4))
report.check("picture_escapes_its_caption", differs(texts[0], "Tokens < per second"))
report.check("picture_shows_the_fastest_variant", [] if "160" in texts and "40.0" not in texts else [f"texts: {texts}"])
report.end()
