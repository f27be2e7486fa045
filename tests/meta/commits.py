# SPDX-License-Identifier: Apache-2.0
"""Subjects of commits: "folder/object: Imperative", at most 72 columns.

  tests/meta/commits.py                  commits after the one that first kept the rule; NGD_COMMITS_SINCE names another
  tests/meta/commits.py --message FILE   the message that a commit is about to get (hook commit-msg)
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

COLUMNS = 72
# The rule holds for commits after this one. It is found by its subject, which stays if the history is rewritten.
SINCE = "scheduler, daemon, client, devices: Sort the files into folders"
WORD = r"[\w.*/{},+-]+"
SUBJECT = re.compile(rf"{WORD}( {WORD})*: ([A-Z]\S*)")
# "Adds", "added" and "adding" are no imperatives; these words only look like them.
IMPERATIVES = {"Bring", "String", "Ring", "Need", "Feed", "Seed", "Speed", "Embed", "Shed", "Exceed", "Succeed", "Proceed", "Focus",
               "Bias"}


def wrong_with(subject):
    """Returns what is wrong with a subject, or None."""
    if subject.startswith('Revert "'):
        return None
    match = SUBJECT.match(subject)
    if len(subject) > COLUMNS:
        return f"{len(subject)} columns; at most {COLUMNS}"
    if not match:
        return 'not of the form "folder/object: Imperative"'
    verb = match[2].rstrip(",:;")
    if verb not in IMPERATIVES and re.search(r"(ing|ed|[^s]s)$", verb):
        return f'"{verb}" is no imperative'
    return "it ends with a full stop" if subject.endswith(".") else None


def git(*arguments):
    """Returns what git prints, or None if it fails; its error output is not shown. The tree may belong to another user."""
    try:
        run = subprocess.run(["git", "-c", f"safe.directory={meta.TOP}", *arguments], cwd=meta.TOP, capture_output=True, text=True,
                             check=False)
    except FileNotFoundError:
        return None
    return run.stdout.strip() if run.returncode == 0 else None


def since():
    """Returns (commit, None), or (None, why there is none)."""
    top = git("rev-parse", "--show-toplevel")
    if top is None or os.path.realpath(top) != os.path.realpath(meta.TOP):
        return None, "this tree has no history of git"
    named = os.environ.get("NGD_COMMITS_SINCE")
    if named:
        commit = git("rev-parse", "--verify", "--quiet", named + "^{commit}")
        return (commit, None) if commit else (None, f"NGD_COMMITS_SINCE names {named}, which is no commit here")
    for line in (git("log", "--format=%H %s") or "").split("\n"):
        commit, _, subject = line.partition(" ")
        if subject == SINCE:
            return commit, None
    shallow = " (the history is shallow)" if git("rev-parse", "--is-shallow-repository") == "true" else ""
    return None, f'no commit here has the subject "{SINCE}"{shallow}; NGD_COMMITS_SINCE names another one to begin behind'


def check_message(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        subject = next((line.rstrip("\n") for line in f if not line.startswith("#")), "")
    wrong = wrong_with(subject)
    if wrong:
        sys.exit(f'the subject is refused, {wrong}: "{subject}"\nsee "Commits" in CONTRIBUTING.md; git commit --no-verify passes over this')


report = meta.Report()
if len(sys.argv) == 3 and sys.argv[1] == "--message":
    check_message(sys.argv[2])
    sys.exit(0)

report.check("what_a_subject_must_be_is_found",
             [s for s in ("daemon/loader: Tell trouble of the machine from a path", ".ci/run, tests/meta: Check subjects",
                          "tests/{rpc,meta}: Bring order", 'Revert "x"') if wrong_with(s)]
             + [s for s in ("Fix it", "daemon: fix it", "daemon: Fixed it", "daemon: Fixes it", "daemon: Fix it.",
                            "daemon: " + "Fix " * 20) if not wrong_with(s)])
start, why = since()
if start is None:
    report.skip("subjects_of_commits_say_where_and_what", why)
else:
    log = git("log", "--no-merges", "--format=%h %s", f"{start}..HEAD") or ""
    commits = [line.partition(" ")[::2] for line in log.split("\n") if line]
    report.check("subjects_of_commits_say_where_and_what",
                 [f"{commit}: {wrong}: {subject}" for commit, subject in commits if (wrong := wrong_with(subject))],
                 'see "Commits" in CONTRIBUTING.md')
report.end()
