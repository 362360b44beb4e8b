"""Defines the errors of work: loops, slots, workflows, agents and their providers."""

from __future__ import annotations

from tenure.errors.base import TenureError


class WorkError(TenureError):
    """Something about taking and doing work."""


class LeaseLostError(WorkError):
    """Raised in the work by its next beat: the lease was lost, so the result would be refused."""

    remedy = "Stop: another delivery may be running"

    def __init__(self, message_id: str, reason: str) -> None:
        self.message_id, self.reason = message_id, reason
        super().__init__(f"the lease of message {message_id} was lost: {reason}")


class LoopDiedError(WorkError):
    """A loop of a group ended with an error, and the group with it. The cause is the loop's own error."""

    def __init__(self, loop: str, error: BaseException) -> None:
        self.loop, self.error = loop, error
        super().__init__(f"loop {loop!r} died: {type(error).__name__}: {error}")


class LoopProcessError(WorkError):
    """The process of a loop did not end well: it raised, it was killed because it stalled, or a signal from outside killed it."""

    def __init__(self, loop: str, exit_code: int, reason: str) -> None:
        self.loop, self.exit_code, self.reason = loop, exit_code, reason
        how = f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
        super().__init__(f"the process of loop {loop!r} {how}: {reason or 'nobody said why'}")


class BoardError(WorkError):
    """The shared memory for beats cannot be had or read."""


class ForeignFileError(BoardError):
    """A file under a name of ours is a link, or another user made it or could write to it. It was not opened."""

    def __init__(self, path: object, why: str) -> None:
        self.path, self.why = path, why
        super().__init__(f"{path} is not ours: {why}", remedy="Look at who made it, and remove it")


class UnknownWorkflowError(WorkError):
    """No workflow of that name or version is registered in this worker."""


class ArgumentsError(WorkError, TypeError):
    """Arguments, or a result, that do not fit the function's types."""


class CommandFailedError(WorkError):
    """A program that a workflow ran ended with a non-zero exit code."""

    def __init__(self, command: tuple[str, ...], returncode: int, tail: tuple[str, ...]) -> None:
        self.command, self.returncode, self.tail = command, returncode, tail
        super().__init__(f"{command[0]} ended with {returncode}; its last lines:\n" + "\n".join(tail))


class Cancelled(WorkError):
    """Raised inside a workflow whose time is over: cancelled, lease lost, stalled, past its deadline, or draining."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"cancelled: {reason}")


class AgentError(TenureError):
    """Something about an LLM agent, its tools or its provider."""


class VisibilityExpansionRequired(AgentError):
    """The model asked to read sections in full that its prompt showed in summary: evaluate again with them open."""

    remedy = "Open these sections and evaluate the prompt again; a MainLoop does so by itself"

    def __init__(self, keys: tuple[str, ...], why: str = "") -> None:
        self.keys, self.why = keys, why
        super().__init__(f"sections to expand: {', '.join(keys)}" + (f" ({why})" if why else ""))


class SessionError(AgentError):
    """A session's file or checkpoint cannot be read, or belongs to another session."""


class ResourceMissingError(AgentError):
    """A tool needs a resource that was not provided."""

    def __init__(self, kind: type[object]) -> None:
        self.kind = kind
        super().__init__(
            f"no {kind.__name__} was provided",
            remedy=f"Put it into the resources: MainLoopConfig(resources={{{kind.__name__}: ...}})",
        )


class ToolSilentError(AgentError):
    """A tool did not beat as often as it declared; it is abandoned, and its next beat raises this."""

    remedy = "Beat more often inside the tool, or declare a longer beat_every_s"

    def __init__(self, tool: str, silent_s: float, declared_s: float) -> None:
        self.tool, self.silent_s, self.declared_s = tool, silent_s, declared_s
        super().__init__(
            f"tool {tool!r} was silent for {silent_s:.1f} s and had declared a beat every {declared_s:g} s"
        )


class PathEscapeError(AgentError):
    """A tool was asked for a path outside of its root, directly or through a link."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path!r} is outside of the tool's root", remedy="Use paths below the root, without links out"
        )


class ProviderError(AgentError):
    """The model's provider did not answer as it should."""


class ProviderRefusedError(ProviderError):
    """The provider will not do this: the key, the model's name, the size or the content is wrong."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(f"the provider refused with status {status}: {reason}", remedy="Correct the request")


class ProviderRateLimitedError(ProviderError):
    """Too many requests; `retry_after_s` where the provider said how long to wait."""

    retryable = True

    def __init__(self, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        said = "it did not say for how long" if retry_after_s is None else f"it asks to wait {retry_after_s:g} s"
        super().__init__(f"the provider limits our rate; {said}")


class ProviderUnavailableError(ProviderError):
    """The provider is out of reach, or answered with an error of its own."""

    retryable = True

    def __init__(self, fact: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(fact)


class ProviderStalledError(ProviderError):
    """The provider sent nothing for longer than we were willing to wait, before or in the middle of its answer."""

    retryable = True


class ProviderStreamError(ProviderError):
    """The provider's stream broke off, or is not what its format says."""

    retryable = True
