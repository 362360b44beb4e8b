# Generated from async_child_submissions.py by tools/generate_sync.py: change that file, then run the tool.

"""How a workflow submits child jobs. Type checkers know their arguments from the function, as they do for `client.submit` (decision 0430).

There is one signature for each option: where a call has one, only that option is checked. `encode.options(...)` has both checked. A child
takes no `job_id` and no `idempotency_key`: its id comes from its parent and its `key`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from tenure.backoff import Retry
from tenure.work.base_context import BaseContext

if TYPE_CHECKING:
    from tenure.work.job_submission import ChildJob
    from tenure.work.registry import Workflow

P = ParamSpec("P")
R = TypeVar("R")


class ChildSubmissions(BaseContext):
    """A base of the context: what submits."""

    @overload
    def submit(
        self, workflow: str, arguments: Mapping[str, Any] | None = None, /, **options_and_arguments: Any
    ) -> ChildJob[Any]: ...

    @overload
    def submit(
        self, workflow: Workflow[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> ChildJob[R]: ...

    @overload
    def submit(
        self, workflow: Workflow[..., R], arguments: Mapping[str, Any] | None, /, **options_and_arguments: Any
    ) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, key: str, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, timeout: float, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, grace: float, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, queue: str, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, priority: int, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, park: bool, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, delay: float, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(
        self, workflow: Workflow[..., R], /, *args: Any, labels: Mapping[str, str], **rest: Any
    ) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, retry: Retry, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, max_attempts: int, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, stall: float, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, stuck: float, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, version: str, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, result_ttl: float, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, name: str, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, submitted_by: str, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, concurrency_key: str, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, max_per_key: int, **rest: Any) -> ChildJob[R]: ...

    @overload
    def submit(self, workflow: Workflow[..., R], /, *args: Any, unique_for: float, **rest: Any) -> ChildJob[R]: ...

    def submit(self, workflow: Any, /, *arguments: Any, **options_and_arguments: Any) -> ChildJob[Any]:
        """Have another workflow run as a job of its own; `wait()` for it, which proves what it proves.

        The next attempt of this job finds the same child: by `key`, or by the order in which it is submitted. Tasks that submit at once give
        each a `key`. It is cancelled when this job does not complete; `labels={"tenure.parent": ""}` lets it live on.
        """
        from tenure.work.job_submission import ChildJob

        key = options_and_arguments.pop("key", "")
        courier, submission, known = self._child(workflow, arguments, key, options_and_arguments)
        job_id = courier.submit(submission, known)
        self.beat()
        return ChildJob(self, courier, job_id, workflow)
