"""Fail when the source reads worse than before: each figure has a ceiling that only goes down.

    python tools/readability.py           fail and name the places when a figure is above its ceiling, or well below it
    python tools/readability.py --list    print every place that is counted

The figures: public class names that are used more than once, docstrings that begin with a word which hides their subject ("What", "Who", "Whether"),
files over 400 lines, functions over 40. When a change makes a figure smaller, lower its ceiling here in the same commit.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "tenure"
HIDING = re.compile(r"^(What|Who|Whoever|Whether|Those who|How long|How many|The same|Of )\b")
CEILINGS = {
    "repeated class names": 0,
    "docstrings that hide their subject": 0,
    "files over 400 lines": 0,
    "functions over 40 lines": 0,
}


def docstrings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yields every docstring, also those below fields and constants, with its line."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else ():
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield one.value.value.strip(), one.lineno


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Returns the lines of a function after its first."""
    return (node.end_lineno or node.lineno) - node.lineno


def counted(source: Path = SOURCE) -> dict[str, list[str]]:
    """Returns the places of each figure."""
    found: dict[str, list[str]] = {name: [] for name in CEILINGS}
    classes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        text, name = path.read_text(), str(path.relative_to(source))
        tree = ast.parse(text)
        if (lines := text.count("\n")) > 400:
            found["files over 400 lines"].append(f"{name}: {lines}")
        for said, line in docstrings(tree):
            if HIDING.match(said):
                found["docstrings that hide their subject"].append(f"{name}:{line}: {said.splitlines()[0][:100]}")
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(f"{name}:{node.lineno}")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := length(node)) > 40:
                found["functions over 40 lines"].append(f"{name}:{node.lineno}: {node.name}, {lines} lines")
    found["repeated class names"] = [
        f"{name}: {', '.join(places)}" for name, places in sorted(classes.items()) if len(places) > 1
    ]
    return found


def main() -> int:
    failed = False
    for figure, places in counted().items():
        ceiling = CEILINGS[figure]
        if "--list" in sys.argv:
            print(f"{figure}: {len(places)} (ceiling {ceiling})", *(f"  {place}" for place in places), sep="\n")
        elif len(places) > ceiling:
            failed = True
            print(
                f"{figure}: {len(places)}, and {ceiling} is the ceiling. The places:",
                *(f"  {place}" for place in places),
                sep="\n",
            )
        elif len(places) < ceiling:
            failed = True
            print(f"{figure}: {len(places)}, and the ceiling is still {ceiling}: lower it in tools/readability.py")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
