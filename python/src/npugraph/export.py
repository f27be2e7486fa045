# SPDX-License-Identifier: Apache-2.0
"""python -m npugraph.export DIR OUT: npugraph.export as a command."""
from __future__ import annotations

import argparse
import sys

from . import export


def main() -> int:
    parser = argparse.ArgumentParser(prog="npugraph.export", description="Makes a checkpoint of any causal decoder of "
                                     "transformers one that npugraphctl loads.")
    parser.add_argument("model", metavar="DIR", help="a checkpoint: config.json and safetensors")
    parser.add_argument("out", metavar="OUT", help="where the new one is written; may be DIR")
    arguments = parser.parse_args()
    try:
        print(export(arguments.model, arguments.out))
    except (OSError, ValueError) as why:
        print(f"npugraph.export: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
