# SPDX-License-Identifier: Apache-2.0
"""The commands and options of the programs' --help, of their manual pages and of the completion are the same."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

OPTION = re.compile(r"--([a-z][a-z0-9-]*)")
report = meta.Report()


def help_of(program, *args):
    path = os.path.join(meta.BUILD, program)
    if not os.access(path, os.X_OK):
        print(f"skip - commands_are_documented: {path} was not built")
        sys.exit(77)
    return subprocess.run([path, *args], capture_output=True, text=True, check=True, timeout=60).stdout


def plain(roff):
    """Returns roff without its escapes and fonts."""
    return re.sub(r"\\f[BIRP]|\\&|\"", "", roff.replace("\\-", "-"))


# ---- --help -------------------------------------------------------------------------------------------------------------

def read_usage(text):
    """Returns the options and the literal words (sub-commands, values to choose from) of a command's usage."""
    usage = text.split("\n\n")[0].removeprefix("Usage: npugraphctl").split(None, 1)
    args = usage[1] if len(usage) > 1 else ""
    return set(OPTION.findall(args)), set(re.findall(r"(?<![-\w:])[a-z][a-z0-9]*(?![-\w:])", args))


ctl = help_of("npugraphctl", "--help")
daemon = help_of("npugraphd", "--help")
names = re.findall(r"^  ([a-z]+) ", ctl.split("Commands:")[1].split("Options:")[0], re.M)
commands = {name: read_usage(help_of("npugraphctl", "help", name)) for name in names}
ctl_globals = set(OPTION.findall(re.sub(r"\(.*?\)", "", ctl.split("Options:")[1].split("`")[0], flags=re.S)))
daemon_own, daemon_options = (set(re.findall(r"^  (?:--[a-z-]+, )?--([a-z-]+)", part, re.M)) for part in daemon.split("\nOptions:"))
daemon_own |= set(re.findall(r"^  --([a-z-]+),", daemon, re.M))

# ---- manual pages and completion ----------------------------------------------------------------------------------------


def section(page, title):
    return re.split(r"^\.SH ", re.split(rf"^\.SH {title}$", page, flags=re.M)[1], flags=re.M)[0]


def man_commands(page):
    """Returns the text of each command's paragraph. Its head is the line after .TP, whose first word is the command."""
    found, at = {}, None
    for block in re.split(r"^\.TP\n", plain(section(page, "COMMANDS")), flags=re.M)[1:]:
        head = re.sub(r"^\.[A-Z]+ ", "", block.split("\n")[0]).split()
        at = head[0] if head[0] in commands else at
        if at is None:
            found.setdefault(head[0], block)  # an unknown command
        else:
            found[at] = found.get(at, "") + block
    return found


def completion_commands(text):
    found = {}
    for heads, choices in re.findall(r"^    ([a-z| ]+)\) choices='([^']*)'.* ;;$", text, re.M):
        for head in heads.split("|"):
            found[head.strip()] = choices.split()
    return found


def compare(page, completion, conf, page8):
    """Returns what is missing, and what should not be there."""
    problems = []

    def same(where, want, got):
        problems.extend(f"{where}: {x} is missing" for x in sorted(want - got))
        problems.extend(f"{where}: {x} is not in --help" for x in sorted(got - want))

    man = man_commands(page)
    choices = completion_commands(completion)
    same("npugraphctl.1, commands", set(commands), set(man))
    for name, (options, words) in commands.items():
        text = man.get(name, "")
        same(f"npugraphctl.1, {name}", options, set(OPTION.findall(text)) - ctl_globals)
        problems.extend(f"npugraphctl.1, {name}: {w} is missing" for w in sorted(words) if not re.search(rf"\b{w}\b", text))
        known = choices.get(name, [])
        same(f"completion, {name}", options, {c[2:] for c in known if c.startswith("--")})
        problems.extend(f"completion, {name}: {w} is no word of its usage" for w in known if w[0] != "-" and w not in words)
    same("completion, commands", set(), set(choices) - set(commands) - {"graph", "help"})
    same("npugraphctl.1, OPTIONS", ctl_globals, set(OPTION.findall(plain(section(page, "OPTIONS")))))
    same("completion, globals", ctl_globals, set(OPTION.findall(re.search(r"'' \| help\) choices='([^']*)'", completion)[1])))
    same("npugraphd.conf.5", daemon_options, set(re.findall(r"^\.TP\n--([a-z-]+)", plain(conf), re.M)))
    same("npugraphd.8", daemon_own, set(OPTION.findall(plain(section(page8, "OPTIONS")))) - {"NAME"})
    for name, roff in (("npugraphctl.1", page), ("npugraphd.conf.5", conf), ("npugraphd.8", page8)):
        problems.extend(f"{name}: there is no {x}" for x in (".TH", ".SH NAME", ".SH DESCRIPTION", ".SH OPTIONS")
                        if not re.search(rf"^{re.escape(x)}\b", roff, re.M))
    return problems


texts = [meta.read(p) for p in ("man/npugraphctl.1", "client/ctl/completion/npugraphctl", "man/npugraphd.conf.5", "man/npugraphd.8")]
report.check("programs_tell_of_commands_and_options",
             [] if len(commands) > 20 and all((ctl_globals, daemon_options, daemon_own)) else ["--help was not understood"])
SHELLS = {"bash": "npugraphctl", "zsh": "_npugraphctl", "fish": "npugraphctl.fish"}
report.check("completions_are_what_the_program_prints",
             [f"client/ctl/completion/{name} is not what npugraphctl completion {shell} prints" for shell, name in SHELLS.items()
              if help_of("npugraphctl", "completion", shell) != meta.read(f"client/ctl/completion/{name}")])
report.check("manual_pages_and_completion_have_each_command_and_option", compare(*texts),
             "--help of the programs is what counts: change man/ with it, and put what `npugraphctl completion SHELL` prints into client/ctl/completion/")

# ---- the check itself: missing entries are found ------------------------------------------------------------------------

MISSING = ((0, "\\-\\-temperature", "generate"), (0, ".B shares\n", "shares"), (0, "\\-\\-quiet", "OPTIONS"),
           (1, "--kv-policy ", "load"), (1, " --tls-key", "globals"), (2, "\\-\\-slots\\", "slots"), (2, ".SH NAME\n", "SH NAME"), (3, "\\-\\-print\\-config", "print-config"))
unseen = []
for which, text, where in MISSING:
    changed = list(texts)
    changed[which] = changed[which].replace(text, "")
    found = compare(*changed)
    if not any(where in f for f in found):
        unseen.append(f"without {text!r}: {found}")
report.check("what_is_missing_is_reported", unseen)
report.end()
