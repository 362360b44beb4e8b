"""Defines the root of the tree, and the errors of settings and of Tenure itself."""

from __future__ import annotations

from typing import ClassVar

MOST_FACT_CHARS = 1_000
"""The most characters of a fact that quotes a foreign error, whose text may be as long as its input."""


class TenureError(Exception):
    """The root. `str(error)` is the fact, followed by the remedy where there is one."""

    retryable: ClassVar[bool] = False
    remedy: str = ""

    def __init__(self, fact: str, *, remedy: str | None = None) -> None:
        if remedy is not None:
            self.remedy = remedy
        self.fact = fact
        super().__init__(f"{fact}. {self.remedy}" if self.remedy else fact)


class ConfigurationError(TenureError, ValueError):
    """A setting or an argument is wrong. Nothing was done."""


class LimitError(ConfigurationError):
    """A number or a size is outside of what is allowed."""

    def __init__(self, field: str, value: object, allowed: str, *, remedy: str | None = None) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        super().__init__(f"{field} is {value}, and must be {allowed}", remedy=remedy)


class OutOfBoundsError(LimitError):
    """One field is outside of the bounds that its type states, whatever the other fields say."""

    remedy = "docs/limits.md and /v1/openapi.json list all bounds"


class LadderError(ConfigurationError):
    """Timeouts that cannot work together: a shorter one would not act before the longer one that relies on it."""

    def __init__(self, ladder: str, broken: list[str]) -> None:
        self.ladder, self.broken = ladder, broken
        super().__init__(
            "these timeouts cannot work together:\n" + ladder + "\n" + "\n".join(f"- {rule}" for rule in broken)
        )


class PortTakenError(ConfigurationError):
    """Another process listens on the port that we were to serve. Nothing was started."""

    def __init__(self, what: str, host: str, port: int, reason: str) -> None:
        self.host, self.port = host, port
        super().__init__(
            f"cannot serve {what} on {host or 'any address'}, port {port}: {reason}",
            remedy="Choose another port, 0 for a free one, or end the process that has it",
        )


class ProductFailedError(TenureError):
    """Tenure's own code raised while it handled one thing. That thing is refused; everything else goes on."""

    remedy = "This is a fault of Tenure: its node's log has the traceback, please report it"

    def __init__(self, doing: str, cause: BaseException, trace: str = "") -> None:
        self.doing, self.trace = doing, trace
        super().__init__(f"Tenure itself failed while {doing}: {type(cause).__name__}: {cause}"[:MOST_FACT_CHARS])
