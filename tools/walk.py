"""Count how far one trivial job walks through the source: functions, files, folders, calls and changes of folder.

    python tools/walk.py            the figures
    python tools/walk.py --files    the files too, with the number of calls into each
    python tools/walk.py --calls    every call in its order, indented by its depth, with a star where the folder changes

It submits a no-op to a datacenter of the test kit (memory engine, inline slots, manual clock) and profiles every Python call from the submission to the
result. A first job runs unprofiled, so that imports and caches do not count. `clock`, `errors` and the test kit are left out.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

from tenure import workflow
from tenure.testing import datacenter

SOURCE = Path(__file__).resolve().parent.parent / "src" / "tenure"
LEFT_OUT = ("clock.py", "errors/", "testing/")


@workflow
def nothing(ctx: object, n: int) -> int:
    return n


class Walk:
    """Counts calls into the source, and how often two calls in a row are in different folders."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.functions: set[tuple[str, str]] = set()
        self.folder_changes = 0
        self.calls: list[str] = []
        self._last = ""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        path = frame.f_code.co_filename
        if not path.startswith(str(SOURCE)):
            return
        name = path[len(str(SOURCE)) + 1 :]
        if name.startswith(LEFT_OUT):
            return
        self.files[name] += 1
        self.functions.add((name, frame.f_code.co_qualname))
        folder = name.rpartition("/")[0]
        self.folder_changes += folder != self._last
        mark = " " if folder == self._last else "*"
        self.calls.append(f"{mark} {'  ' * depth_of(frame)}{name}:{frame.f_code.co_qualname}")
        self._last = folder


def depth_of(frame: FrameType) -> int:
    """Returns how many of the callers of a frame are functions of the source, too."""
    depth, caller = 0, frame.f_back
    while caller is not None:
        depth += caller.f_code.co_filename.startswith(str(SOURCE))
        caller = caller.f_back
    return depth


def main() -> int:
    kit = datacenter.TestDatacenter()
    try:
        kit.submit(nothing, n=0).wait()
        walk = Walk()
        threading.setprofile(walk)
        sys.setprofile(walk)
        kit.submit(nothing, n=1).wait()
        sys.setprofile(None)
        threading.setprofile(None)
    finally:
        kit.close()
    folders = {name.rpartition("/")[0] for name in walk.files}
    print(
        f"{len(walk.functions)} functions in {len(walk.files)} files of {len(folders)} folders; "
        f"{walk.files.total():,} calls, {walk.folder_changes:,} changes of folder"
    )
    if "--calls" in sys.argv:
        print(*walk.calls, sep="\n")
    if "--files" in sys.argv:
        for name, calls in walk.files.most_common():
            print(f"{calls:>6} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
