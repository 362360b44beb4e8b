"""Video: ffmpeg's own progress is the proof. A hung ffmpeg is ended with everything that it started, and the film is encoded elsewhere."""

from __future__ import annotations

from pathlib import Path

from tenure import Context, workflow

FFMPEG = ["ffmpeg", "-nostdin", "-y", "-progress", "pipe:1", "-loglevel", "error"]


@workflow(stall=120, max_attempts=3)
def encode(ctx: Context, source: str, target: str, program: list[str] = FFMPEG) -> int:
    part = f"{target}.part"
    ctx.run([*program, "-i", source, "-f", "mp4", part])  # one beat for each line of its progress
    Path(part).rename(target)  # whole or not at all
    return Path(target).stat().st_size
