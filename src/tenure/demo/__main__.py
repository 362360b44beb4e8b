"""`python -m tenure.demo [name]`: the newest story, or the one named."""

from __future__ import annotations

import importlib
import sys

STORIES = ("datacenter", "beats", "consumers", "world")


def main() -> int:
    name = sys.argv[1] if len(sys.argv) > 1 else STORIES[0]
    if name not in STORIES:
        print(f"there is no demo {name!r}; there are: {', '.join(STORIES)}", file=sys.stderr)
        return 2
    code: int = importlib.import_module(f"tenure.demo.{name}").main()
    return code


if __name__ == "__main__":
    sys.exit(main())
