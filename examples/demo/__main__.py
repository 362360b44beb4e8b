"""`python -m examples.demo [name]`: tells the story of one datacenter, or the one that is named."""

from __future__ import annotations

import importlib
import sys

STORIES = ("datacenter", "world")


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else STORIES[0]
    if name not in STORIES:
        print(f"there is no demo {name!r}; there are: {', '.join(STORIES)}", file=sys.stderr)
        return 2
    code: int = importlib.import_module(f"examples.demo.{name}").main()
    return code


if __name__ == "__main__":
    sys.exit(main())
