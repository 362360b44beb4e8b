"""Write deploy/kubernetes from the chart in deploy/helm/tenure with its default values, so that both are one source.

    python tools/render_chart.py            writes the files
    python tools/render_chart.py --check    fails when one is not current

It knows the part of Helm's language that the chart uses: values, `if` and `range` over a list, each with its `end`. Anything else raises.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART, PLAIN = ROOT / "deploy/helm/tenure", ROOT / "deploy/kubernetes"
_TAG = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}")


def main() -> int:
    stale = []
    for name, text in rendered(values()).items():
        path = PLAIN / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(str(path.relative_to(ROOT)))
        if "--check" not in sys.argv:
            path.write_text(text)
    if stale and "--check" in sys.argv:
        print(f"not current: {', '.join(stale)}. Run python tools/render_chart.py", file=sys.stderr)
        return 1
    return 0


def values() -> dict[str, Any]:
    return dict(yaml.safe_load((CHART / "values.yaml").read_text()))


def rendered(chosen: Mapping[str, Any], release: str = "tenure") -> dict[str, str]:
    """Returns each file of the chart's templates, filled in; those that the values leave out are empty texts."""
    scope = {"Values": chosen, "Release": {"Name": release}}
    return {path.name: render(path.read_text(), scope) for path in sorted((CHART / "templates").glob("*.yaml"))}


def render(template: str, scope: Mapping[str, Any]) -> str:
    found, rest = _block(_pieces(template), scope)
    if rest:
        raise ValueError(f"an end without a beginning, before {rest[0]!r}")
    return found.lstrip("\n")


def _pieces(template: str) -> list[str | tuple[str]]:
    """Returns the template's texts, and its tags as tuples. A dash eats the white space on its side, as Helm's does."""
    pieces: list[str | tuple[str]] = []
    position, eat = 0, False
    for tag in _TAG.finditer(template):
        text = template[position : tag.start()]
        text = text.lstrip() if eat else text
        pieces.append(text.rstrip() if tag[1] else text)
        pieces.append((tag[2],))
        position, eat = tag.end(), bool(tag[3])
    pieces.append(template[position:].lstrip() if eat else template[position:])
    return pieces


def _block(pieces: list[str | tuple[str]], scope: Mapping[str, Any]) -> tuple[str, list[str | tuple[str]]]:
    """Renders up to the `end` of the block. Returns the text, and the pieces behind it."""
    out = ""
    while pieces:
        piece, *pieces = pieces
        if isinstance(piece, str):
            out += piece
            continue
        word, _, name = piece[0].partition(" ")
        if word == "end":
            return out, pieces
        if word in ("if", "range"):
            turns = _value(name, scope)
            scopes = [{**scope, ".": item} for item in turns] if word == "range" else [scope] if turns else []
            begun = pieces
            pieces = _block(begun, {**scope, ".": ""})[1]
            out += "".join(_block(begun, inner)[0] for inner in scopes)
        elif name:
            raise ValueError(f"the renderer does not know {piece[0]!r}")
        else:
            out += str(_value(word, scope))
    return out, []


def _value(path: str, scope: Mapping[str, Any]) -> Any:
    if path == ".":
        return scope["."]
    value: Any = scope
    for part in path.removeprefix(".").split("."):
        value = value[part]
    return value


if __name__ == "__main__":
    raise SystemExit(main())
