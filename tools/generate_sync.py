"""Write the blocking twins of async sources, so that each class has one source.

    python tools/generate_sync.py            write the twins
    python tools/generate_sync.py --check    exit 1 and name the twins that are not current

A source says what differs in comments: `# sync: TEXT` becomes TEXT in the twin, and a line that ends in `# async only` is left out of it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {
    "src/tenure/client/async_client.py": "src/tenure/client/client.py",
    "src/tenure/client/async_job.py": "src/tenure/client/job.py",
    "src/tenure/client/async_operator_calls.py": "src/tenure/client/operator_calls.py",
    "src/tenure/client/async_submissions.py": "src/tenure/client/submissions.py",
    "src/tenure/work/async_child_submissions.py": "src/tenure/work/child_submissions.py",
    "src/tenure/agent/async_loops.py": "src/tenure/agent/loops.py",
}
WORDS = [
    # (await f(x)).y, without its parentheses.
    (r"\(await (\w[\w.]*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))\)\.", r"\1."),
    (r"\bawait off_loop\((\w[\w.]*), ", r"\1("),
    (r"\bawait off_loop\((\w[\w.]*)\)", r"\1()"),
    (r"\bawait awaited\((.*)\)$", r"\1"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (
        r"\bAsync(ChildJob|ChildSubmissions|Client|Completion|Context|InnerLoop|Iterator|Job|JobMap|MainLoop|ModelAdapter|OperatorCalls|ProviderAdapter|Submissions|ToolExecutor|WorkflowHandle)\b",
        r"\1",
    ),
    (r"\basync_(child_submissions|client|job|loops|operator_calls|submissions)\b", r"\1"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"clock\.async_sleep\b", "clock.sleep"),
    (r"\basync_complete_watched\b", "complete_watched"),
    (r"\btenure\.control\.async_caller\b", "tenure.control.caller"),
    (r"\bHttpCaller\b", "CallerPerThread"),
]
"""Pairs of a pattern in the source and its replacement in the twin, applied in this order."""


def twin_of(source: str) -> str:
    """Returns the blocking twin of one async source, as ruff formats it."""
    name = source.rpartition("/")[2]
    lines = [f"# Generated from {name} by tools/generate_sync.py: change that file, then run the tool.", ""]
    for line in (ROOT / source).read_text().splitlines():
        if line.endswith("# async only"):
            continue
        if directive := re.fullmatch(r"( *)# sync: (.*)", line):
            lines.append(directive[1] + directive[2])
            continue
        for pattern, replacement in WORDS:
            line = re.sub(pattern, replacement, line)
        lines.append(line)
    text = "\n".join(lines) + "\n"
    for command in (["check", "--quiet", "--fix", "--unsafe-fixes", "--select", "I,UP028"], ["format", "--quiet"]):
        ruff = [str(Path(sys.executable).parent / "ruff"), *command, "--stdin-filename", SOURCES[source], "-"]
        text = subprocess.run(ruff, cwd=ROOT, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> int:
    stale = []
    for source, twin in SOURCES.items():
        wanted, path = twin_of(source), ROOT / twin
        if path.exists() and path.read_text() == wanted:
            continue
        stale.append(twin)
        if "--check" not in sys.argv:
            path.write_text(wanted)
    for twin in stale:
        print(
            f"{twin} {'is not current: run python tools/generate_sync.py' if '--check' in sys.argv else 'was written'}"
        )
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
