"""The work that both trees do, by names that every release has: it marks each job with one byte, so that the driver can count them from outside."""

import os

from tenure import workflow


@workflow
def noop(ctx: object) -> None:
    file = os.open(os.environ["COMPARED_COUNT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(file, b".")
    os.close(file)
