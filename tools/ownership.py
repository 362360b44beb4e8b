"""Time, randomness and ids come from the files that own them; everything else is told.

    python tools/ownership.py

Reads every file below src/ as a syntax tree, so that a name in a comment or a string does not count.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "tenure"

# What may be asked of the machine, and the one file that may ask it.
OWNERS = {
    "time": "clock.py",
    "random": "randomness.py",
    "uuid": "randomness.py",
    "secrets": "randomness.py",
}
# Names that only carry a type, never ask.
HARMLESS = {("random", "Random")}
CALLS = {
    ("datetime", "now"): "clock.py",
    ("datetime", "utcnow"): "clock.py",
    ("datetime", "today"): "clock.py",
    ("date", "today"): "clock.py",
    ("os", "urandom"): "randomness.py",
    ("os", "getrandom"): "randomness.py",
}


def offences(path: Path, tree: ast.AST) -> list[str]:
    name = path.relative_to(SOURCE).as_posix()
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                owner = OWNERS.get(alias.name.split(".")[0])
                if owner and name != owner:
                    found.append(f"{path}:{node.lineno}: imports {alias.name}; only {owner} may")
        elif isinstance(node, ast.ImportFrom) and node.module in OWNERS and name != OWNERS[node.module]:
            asked = [alias.name for alias in node.names if (node.module, alias.name) not in HARMLESS]
            if asked:
                found.append(
                    f"{path}:{node.lineno}: takes {', '.join(asked)} from {node.module}; only {OWNERS[node.module]} may"
                )
        elif isinstance(node, ast.Attribute):
            base = node.value
            base_name = base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
            owner = CALLS.get((base_name, node.attr))
            if owner and name != owner:
                found.append(f"{path}:{node.lineno}: asks {base_name}.{node.attr}; only {owner} may")
    return found


def main() -> int:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        found += offences(path, ast.parse(path.read_text(), str(path)))
    for line in found:
        print(line)
    if found:
        print("Take a Clock, a Random or an IdSource as an argument instead.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
