"""Write docs/errors.md and docs/settings.md from the code: each error with its meaning and remedy, each setting with its default and reason.

python tools/reference_pages.py            writes them
python tools/reference_pages.py --check    fails when one is not current
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import tenure.errors as errors

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {
    "A worker's slots": ("tenure.work.slots.settings", "SlotSettings", "`tenure worker`, or `Supervisor(settings=…)`"),
    "A manager's decisions": ("tenure.jobs.settings", "JobSettings", "`tenure manager`"),
    "A gate's decisions": ("tenure.jobs.settings", "GateSettings", "`tenure gate`"),
    "Sizes": ("tenure.jobs.settings", "JobLimits", "fixed"),
    "Any node": ("tenure.nodes.node_process", "NodeSettings", "`tenure manager`, `tenure gate`"),
    "The port of a node": ("tenure.control.admission", "HttpLimits", "`--rate-limit`; the rest is fixed"),
    "Leases of a loop": ("tenure.beat.lease", "LeaseExtenderConfig", "`LoopGroup`, `MailboxLoop`"),
    "Retries": ("tenure.backoff", "Retry", "`@workflow(retry=…)`, `submit(retry=…)`"),
    "Gossip": ("tenure.gossip.settings", "GossipSettings", "`--gossip`"),
}


def error_page() -> str:
    found = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, errors.TenureError)]
    lines = [
        "# Errors",
        "",
        "Every error is a `tenure.errors.TenureError`. `str(error)` is a fact, followed by a remedy. `error.retryable` says whether trying the same thing again can help, and `error.page` names its place on this page.",
        "",
        "Written by `tools/reference_pages.py`.",
    ]
    for one in sorted(set(found), key=lambda kind: kind.__name__):
        doc = inspect.cleandoc(one.__doc__ or "")
        lines += ["", f"## {one.__name__}", "", doc]
        facts = (
            [f"a kind of [{one.__bases__[0].__name__}](#{one.__bases__[0].__name__.lower()})"]
            if one.__bases__[0] in found
            else []
        )
        facts += ["trying again can help"] if one.retryable else []
        if facts:
            lines += [
                "",
                f"It is {', and '.join(facts)}." if facts[0].startswith("a kind") else "Trying again can help.",
            ]
        if one.remedy:
            lines += ["", f"What to do: {one.remedy}."]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    lines = [
        "# Settings",
        "",
        "A setting that contradicts another is an error that names both when it is made.",
        "",
        "Written by `tools/reference_pages.py`.",
    ]
    for title, (module, name, where) in SETTINGS.items():
        kind = getattr(import_module(module), name)
        lines += [
            "",
            f"## {title}",
            "",
            f"`{module}.{name}`, set by {where}.",
            "",
            "| setting | unit | default | why |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| `{field}` | {unit_of(kind, field)} | {default} | {why} |" for field, default, why in fields_of(kind)
        ]
    return "\n".join(lines) + "\n"


def fields_of(kind: type[Any]) -> list[tuple[str, str, str]]:
    """Returns (name, default, reason) of each field, as the class body has them: the reason is the string below a field, or its comment."""
    source = inspect.getsource(kind)
    body = ast.parse(inspect.cleandoc(source) if source.startswith(" ") else source).body[0]
    assert isinstance(body, ast.ClassDef)
    rows = source.splitlines()
    found: list[tuple[str, str, str]] = []
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            default = default_of(kind, node.target.id, node)
            comment = rows[node.end_lineno - 1].partition("  # ")[2] if node.end_lineno else ""
            found.append((node.target.id, f"`{default}`" if default else "required", comment))
        elif (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            and found
        ):
            name, default, _ = found[-1]
            found[-1] = name, default, " ".join(node.value.value.split()).replace("|", "\\|")
    attributes = dict(re.findall(r"^\s+(\w+): (.+)$", (kind.__doc__ or "").partition("Attributes:")[2], re.MULTILINE))
    return [(name, default, why or attributes.get(name, "")) for name, default, why in found]


UNITS = {
    "_s": "s",
    "_per_s": "per second",
    "_bytes": "bytes",
    "_bytes_total": "bytes",
    "_mb": "MiB",
    "_chars": "characters",
}
SECONDS = {
    "report_interval",
    "fallback_after",
    "stuck_threshold",
    "archive_after",
    "keep_archive",
    "id_memory",
    "check_interval",
}
SECONDS |= {"resend_first", "resend_most", "interval", "extension", "delay", "max_delay"}
"""The documents' names, which have no unit in them."""


def unit_of(kind: type[Any], name: str) -> str:
    """Returns the unit of a setting, by the end of its name or by its type; a dash for what has none."""
    ends = [end for end in UNITS if name.endswith(end)]
    if ends:
        return UNITS[max(ends, key=len)]
    if name in SECONDS:
        return "s"
    if name == "state_budget":
        return "bytes"
    declared = str(inspect.get_annotations(kind).get(name, ""))
    return "count" if re.match(r"int\b|b\.(Attempts|Restarts)", declared) else "–"


def default_of(kind: type[Any], name: str, node: ast.AnnAssign) -> str:
    if node.value is None:
        return ""
    text = ast.unparse(node.value)
    if "factory" in text or text.startswith("field("):
        return "its own defaults" if "factory" in text else "empty"
    try:
        value = eval(text, vars(sys.modules[kind.__module__]))
    except NameError:
        return text
    return (
        f"{value:g}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else repr(value)
    )


PAGES = {"docs/errors.md": error_page, "docs/settings.md": settings_page}


def main() -> int:
    stale = [path for path, make in PAGES.items() if not (ROOT / path).exists() or (ROOT / path).read_text() != make()]
    if "--check" in sys.argv:
        print("".join(f"{path} is not current: run python tools/reference_pages.py\n" for path in stale), end="")
        return 1 if stale else 0
    for path in stale:
        (ROOT / path).write_text(PAGES[path]())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
