"""The types of `submit_in` and `submit_in_async`: those of `client.submit`, with a connection before the workflow (decision 0430)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from tenure.backoff import Retry
from tenure.codec import Codec
from tenure.work.registry import Workflow

P = ParamSpec("P")
AnswerT = TypeVar("AnswerT", covariant=True)


class SubmitIn(Protocol[AnswerT]):
    """A call that submits a job in a transaction, and gives its id: as it is, or to await."""

    @overload
    def __call__(
        self,
        connection: Any,
        target: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        **options_and_arguments: Any,
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> AnswerT: ...

    @overload
    def __call__(
        self,
        connection: Any,
        target: Workflow[..., Any],
        arguments: Mapping[str, Any] | None,
        /,
        **options_and_arguments: Any,
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, timeout: float, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, grace: float, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, queue: str, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, priority: int, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, park: bool, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, delay: float, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, job_id: str, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, idempotency_key: str, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, labels: Mapping[str, str], **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, retry: Retry, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, max_attempts: int, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, stall: float, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, stuck: float, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, version: str, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, result_ttl: float, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, name: str, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, submitted_by: str, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, schema: str, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, codec: Codec | None, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, concurrency_key: str, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, max_per_key: int, **rest: Any
    ) -> AnswerT: ...

    @overload
    def __call__(
        self, connection: Any, target: Workflow[..., Any], /, *args: Any, unique_for: float, **rest: Any
    ) -> AnswerT: ...
