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


ADVICE = {
    "ArgumentsError": "The error names the argument, its type and what came. Submit with others; `tenure workflows` shows what a function takes",
    "Cancelled": "Let it pass: clean up in `finally`, and do not catch it. `tenure why JOB` says who ended the attempt",
    "CodecError": "Give clients and workers the same codec and the same keys; an old key stays until nothing that it sealed is left",
    "CommandFailedError": "Look at `code` and at the last lines of its output, which the error has; run the same command by hand",
    "EngineClosedError": "Use the engine inside its `with` block, or open it again",
    "EngineReadOnlyError": "Give this user the right to write, or look whether the server is a replica or its disk is mounted read-only; `tenure doctor --engine URL` names what is missing",
    "EngineRefusedError": "The error names the promise and the setting that would make it possible. Change that, or choose another engine",
    "EngineVersionError": "Upgrade Tenure on this machine where a newer one has written, or the server where that one is too old",
    "EngineWentBackError": "Stop writers, and find out why the server lost writes: a failover to an asynchronous replica, or a disk without fsync. Then look at the journal: `tenure journal check`",
    "ForeignFileError": "Remove the file that the error names if you know what it is, and keep others from writing to that folder",
    "IllegalTransitionError": "This is a fault of Tenure if your code did not build the state machine itself: please report it with `tenure why JOB`",
    "InvariantError": "The failure prints its seed and the command that replays it: replay it with `--trace`",
    "JobFailed": "Read `error.why`: its first line says who ended the job, its second what to do. `tenure why JOB` prints the same, and [disasters](disasters.md) has examples",
    "JobsFailed": "Look at `error.failures`: each has its own `why`. Results of the others are in `error.results`",
    "KeyRefusedError": "Nothing, where the same work was sent before: it is known. Otherwise send it with a higher generation, or under another key",
    "LadderError": "Each broken rule of the list says which of two timeouts to raise or to lower",
    "LoopDiedError": "Look at its cause, the error of your own code; the process that runs the group is to be started again",
    "LoopProcessError": "Its text says whether it raised, stalled or was killed; the log has the stacks",
    "MailboxClosedError": "Use the mailbox while its engine is open",
    "NoResultError": "Name the workflow in `after=`, or use `ctx.results.get(name)` where it may have failed",
    "NodeRefusedError": "The fact is the node's own. `error.page` leads to the error that the node met",
    "PathEscapeError": "Give the tool a wider root if the model should read there; otherwise nothing: the model is told",
    "Permanent": "Your own code raised it: mend what it names, then `tenure retry JOB`",
    "PortTakenError": "Choose another port, 0 for a free one, or end the process that has it",
    "ProviderRateLimitedError": "Wait as long as `retry_after_s` says, send less at once (`max_per_key`, `--rate`), or ask the provider for more",
    "ProviderRefusedError": "Look at the key, the name of the model and the size of the request: no further attempt helps until one of them changes",
    "ProviderStalledError": "Try again; where it happens often, allow a longer silence (`model_silence_s`) or choose a smaller answer",
    "ProviderStreamError": "Try again; where it happens often, a proxy between you and the provider cuts or changes the stream",
    "ProviderUnavailableError": "Look at the provider's status, your key and your network. Attempts that wait for a provider that is down are [held](outages.md)",
    "ResourceMissingError": "Provide it: `MainLoopConfig(resources={Kind: thing})`",
    "RetryAfter": "Nothing: it is tried again by itself. It counts as an attempt",
    "SerializationError": "Send only what JSON can say, in the type of the mailbox; the error names the place",
    "SessionError": "Take the file that belongs to this session, or begin a new one",
    "SimulationDeadlockError": "Look at what the last event of the trace waits for",
    "SimulationForbiddenError": "Use what the error names: the host's clock, its transport, its tasks",
    "SimulationRunawayError": "Look for a loop without a wait in it, or raise the scenario's `limits`",
    "StaleSnapshotError": "Nothing: another node has written a newer one",
    "StepConflictError": "Give repeated steps a `key=`, and do not reorder recorded ones; a changed workflow gets another `version=`",
    "StepTimeoutError": "Raise the step's `timeout=`, or find out what it waited for; it is tried again by its `retry=`",
    "UnknownWorkflowError": "Start a worker that serves it (`tenure worker MODULE --managed`), or correct the name; `tenure workflows` lists those that are known",
    "WaitTimeoutError": "Catch it where no answer is an answer; otherwise wait longer (`timeout=` of `ctx.wait_event`)",
    "WireError": "Give both sides the same label, key and version of the protocol; a stray packet is dropped and does no harm",
}
"""What to do about errors whose own text says it each time anew, or has nothing to say."""


def error_page() -> str:
    found = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, errors.TenureError)]
    lines = [
        "# Errors",
        "",
        "Every error is a `tenure.errors.TenureError`. `str(error)` is a fact, followed by a remedy. `error.retryable` says whether trying the same thing again can help, and `error.page` names its place on this page: commands, the HTTP API (`page` of a problem) and the dashboard show it. Where you have these pages as a site (`make docs`), set `TENURE_DOCS=https://docs.example.org` for nodes and programs, and it is a link.",
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
        if what_to_do := one.remedy or ADVICE.get(one.__name__, ""):
            lines += ["", f"What to do: {what_to_do}."]
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
