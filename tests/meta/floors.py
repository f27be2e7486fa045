# SPDX-License-Identifier: Apache-2.0
"""Calls point downwards only: no object file needs a symbol of a room above its own, or of another on its floor."""
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

# House -> its floors, the lowest first. The rooms of a floor, separated by spaces, may not use one another. A room is a
# folder with all in it, or a source without its suffix. If two rooms contain a source, it is in that with the longer path.
FLOORS = [
    (".", ["base", "graphs proto", "devices", "scheduler", "daemon"]),
    ("scheduler", ["record", "lineup", "run", "program", "replay", "model diag", "sched"]),
    ("client", ["lib", "hf", "ctl"]),
    ("daemon", ["trace", ".", "front rpc", "control", "handlers", "handover", "startup", "main"]),
]


def symbols(paths):
    """Returns object file -> (names that it defines for others, names that it needs)."""
    found = {path: (set(), set()) for path in paths}
    text = subprocess.run(["nm", "--extern-only", "--print-file-name", *paths], capture_output=True, text=True, check=True).stdout
    for path, kind, name in re.findall(r"^(.*):[0-9a-f]* +([A-Za-z]) (\S+)$", text, re.M):
        defined, needed = found[path]
        if kind in "Uw":
            needed.add(name)
        elif kind.isupper():
            defined.add(name)
    return found


def objects(folders):
    """Returns source without suffix -> (defined, needed), for all sources of which there is an object file below the folders."""
    paths = {}
    for where, _, names in (step for folder in folders for step in os.walk(os.path.join(meta.BUILD, folder))):
        for name in names:
            if name.endswith(".o"):
                source = os.path.relpath(os.path.join(where.removesuffix("/.libs"), name[:-2]), meta.BUILD)
                source = re.sub(r"lib\w+_la-([^/]*)$", r"\1", source)
                if any(os.path.exists(os.path.join(top, source + ".c")) for top in (meta.TOP, meta.BUILD)):
                    paths[source] = os.path.join(where, name)  # others are left from before
    known = symbols(list(paths.values())) if paths else {}
    return {source: known[path] for source, path in paths.items()}


def folders_of(house, floors):
    """Returns the top folders that the rooms of a house are in."""
    return {room.split("/")[0] for room in rooms_of(house, floors)}


def rooms_of(house, floors):
    """Returns room -> (number of its floor, the room's name)."""
    return {os.path.normpath(os.path.join(house, room)): (number, room)
            for number, floor in enumerate(floors) for room in floor.split()}


def room_of(source, rooms):
    """Returns the floor and name of the room that a source is in, or None."""
    fitting = [room for room in rooms if source == room or source.startswith(room + "/")]
    return rooms[max(fitting, key=len)] if fitting else None


def upward(built, house, floors):
    """Returns each call that does not point downwards: the caller's source, the symbol, and its source."""
    rooms = rooms_of(house, floors)
    place = {source: room_of(source, rooms) for source in built}
    owner = {name: source for source, (defined, _) in built.items() if place[source] for name in defined}
    for source, (_, needed) in sorted(built.items()):
        for name in sorted(needed):
            to = owner.get(name)
            if place[source] and to and place[to] != place[source] and place[to][0] >= place[source][0]:
                yield f"{source} -> {name} ({to})"


report = meta.Report()

# The check itself: of four calls two are wrong, one upwards and one across.
MADE_UP = {"h/low": ({"low"}, {"top"}), "h/a/x": ({"x"}, {"low", "y"}), "h/b/y": ({"y"}, set()),
           "h/top": ({"top"}, {"x", "other"})}
caught = list(upward(MADE_UP, "h", [".", "a b", "top"]))
report.check("planted_calls_are_found", [] if caught == ["h/a/x -> y (h/b/y)", "h/low -> top (h/top)"] else caught)

if not shutil.which("nm"):
    report.skip("calls_point_downwards_only", "there is no nm")
else:
    every = objects(sorted({folder for house, floors in FLOORS for folder in folders_of(house, floors)}))
    for house, floors in FLOORS:
        folders = folders_of(house, floors)
        built = {source: names for source, names in every.items() if source.split("/")[0] in folders}
        name = "calls_point_downwards_only" + ("" if house == "." else f"_in_{house}")
        if any(defined for defined, _ in built.values()):
            report.check(name, upward(built, house, floors), "from the lowest: " + "; ".join(floors))
        else:
            report.skip(name, "nothing was built, or objects have no symbols of their own (link-time optimisation)")
report.end()
