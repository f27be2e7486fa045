#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's first session, pasted as it stands, works."""
import re

from harness import *


def first_session():
    """Returns the blocks of README's first session, as a script."""
    section = (SOURCE / "README.md").read_text().split("\n## A first session\n")[1].split("\n## ")[0]
    return re.findall(r"^```\n(.*?)^```\n", section, re.M | re.S)


@test("README's first session works when it is pasted, in a shell that has no XDG_RUNTIME_DIR")
def pasted():
    blocks = first_session()
    assert len(blocks) == 2 and all("npugraphctl" in block for block in blocks), blocks
    # The directory that quickstart would have built, with these programs.
    built = SCRATCH / "top/build/release"
    built.mkdir(parents=True)
    (SCRATCH / "top/examples").symlink_to(SOURCE / "examples")
    for program in ("npugraphd", "npugraphctl"):
        (built / program).symlink_to(pathlib.Path(DAEMON if program == "npugraphd" else CTL).resolve())
    env = {k: v for k, v in os.environ.items() if k not in ("XDG_RUNTIME_DIR", "NPUGRAPH_ADDRESS")} | {"TMPDIR": str(SCRATCH)}
    out = subprocess.run([*END_WITH_US, "bash", "-e", "-c", "".join(blocks) + "wait\n"], cwd=SCRATCH / "top", env=env, text=True,
                         capture_output=True, timeout=4 * PATIENCE)
    assert out.returncode == 0, out
    for says in ("State      serving", "Qwen3ForCausalLM", "z      f32", "Replay "):
        assert says in out.stdout, (says, out.stdout)


if __name__ == "__main__":
    main()
