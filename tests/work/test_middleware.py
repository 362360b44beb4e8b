"""What surrounds attempts: the order of it, what it may change, and what is refused before anything runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Annotated, Any

import pytest

from tenure import JobFailed, hook, middleware, resource, workflow
from tenure.errors import ConfigurationError
from tenure.testing import TestDatacenter
from tenure.work.registry import Registry

happened: list[str] = []


class Session:
    def __init__(self, pool: str) -> None:
        self.pool, self.open = pool, True


@middleware
def outer(ctx: Any) -> Iterator[None]:
    happened.append(f"outer before {ctx.workflow}")
    try:
        yield
    except ZeroDivisionError as error:
        happened.append("outer saw it")
        raise ValueError("divided by nothing") from error
    finally:
        happened.append("outer after")


@middleware
def inner(ctx: Any) -> Iterator[None]:
    happened.append("inner before")
    yield
    happened.append("inner after")


@resource(per="slot")
def pool() -> Iterator[str]:
    happened.append("pool opened")
    yield "pool"
    happened.append("pool closed")


@resource
def session(ctx: Any, where: Annotated[str, pool]) -> Iterator[Session]:
    made = Session(f"{where} of {ctx.workflow}")
    yield made
    made.open = False
    happened.append("session closed")


@resource
async def async_session(where: Annotated[str, pool]) -> AsyncIterator[Session]:
    made = Session(where)
    yield made
    happened.append("async session closed")


@resource(per="slot")
async def async_pool() -> AsyncIterator[str]:
    happened.append("async pool opened")
    yield "async pool"
    happened.append("async pool closed")


@hook("attempt_success")
def told(ctx: Any, result: Any) -> None:
    happened.append(f"{ctx.workflow} gave {result}")


@hook("attempt_failure")
def told_of_failure(ctx: Any, error: BaseException) -> None:
    happened.append(f"{ctx.workflow} raised {type(error).__name__}")


@hook("attempt_start")
def breaks(ctx: Any) -> None:
    raise RuntimeError("a hook of no use")


@hook("slot_end")
def told_of_the_end() -> None:
    happened.append("slot ended")


@workflow
def save(ctx: Any, row: int, db: Annotated[Session, session], again: Annotated[Session, session]) -> str:
    assert db is again, "one attempt has one of it"
    assert db.open
    return f"{row} by {db.pool}"


@workflow
async def save_later(ctx: Any, row: int, db: Annotated[Session, async_session], p: Annotated[str, async_pool]) -> str:
    return f"{row} by {db.pool} and {p}"


@workflow(max_attempts=1)
def divide(ctx: Any) -> float:
    return 1 / 0


@pytest.fixture(autouse=True)
def nothing_happened() -> None:
    happened.clear()


def test_middleware_surrounds_resources_which_surround_the_work_and_the_slots_own_end_with_it() -> None:
    with TestDatacenter() as datacenter:
        assert datacenter.submit(save, row=1).wait() == "1 by pool of save"
        first, happened[:] = list(happened), []
        assert datacenter.submit(save, row=2).wait() == "2 by pool of save"
        second, happened[:] = list(happened), []
    assert first == [
        "outer before save",
        "inner before",
        "pool opened",
        "session closed",
        "inner after",
        "outer after",
        "save gave 1 by pool of save",
    ]
    assert second == [line.replace("gave 1", "gave 2") for line in first if line != "pool opened"]
    assert happened == ["pool closed", "slot ended"]


def test_async_work_has_async_resources_and_plain_middleware() -> None:
    with TestDatacenter() as datacenter:
        for row in (1, 2):
            assert datacenter.submit(save_later, row=row).wait() == f"{row} by pool and async pool"
    assert happened.count("async session closed") == 2
    assert happened.count("async pool opened") == happened.count("pool opened") == 1
    assert happened[-3:] == ["async pool closed", "pool closed", "slot ended"]


def test_an_error_of_the_work_comes_out_of_the_yield_and_a_middleware_may_make_another_of_it() -> None:
    with TestDatacenter() as datacenter, pytest.raises(JobFailed, match="divided by nothing"):
        datacenter.submit(divide).wait()
    assert "outer saw it" in happened
    assert "inner after" not in happened
    assert "divide raised ValueError" in happened


def test_a_resource_is_no_argument_of_a_job() -> None:
    assert save.parameters == ("row",)
    served = save.served.arguments
    assert served is not None
    assert "db" not in str(served)
    mine = Session("mine")
    assert save(None, 3, mine, mine) == "3 by mine", "a test of one's own passes what it likes"


def module_of(**values: Any) -> ModuleType:
    made = ModuleType("made_for_this_test")
    vars(made).update(values)
    return made


def test_async_surroundings_of_a_plain_workflow_are_refused_when_it_is_registered() -> None:
    @middleware
    async def waits(ctx: Any) -> AsyncIterator[None]:
        yield

    with pytest.raises(ConfigurationError, match="middleware waits is async, and workflow divide is not"):
        Registry.from_modules([module_of(waits=waits, divide=divide)])
    plain = workflow(name="plain")(lambda ctx, db: None)
    plain.__dict__["resources"] = {"db": async_session}
    with pytest.raises(ConfigurationError, match="resource async_session is async, and workflow plain is not"):
        Registry([plain])


def test_marks_that_can_never_work_are_refused_where_they_are_written() -> None:
    with pytest.raises(ConfigurationError, match="does not yield"):
        middleware(lambda ctx: None)
    with pytest.raises(ConfigurationError, match="never comes"):
        hook("attempt_sucess")(lambda ctx: None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="wants a context"):
        resource(per="slot")(lambda ctx: None)
    with pytest.raises(ConfigurationError, match="per 'job'"):
        resource(per="job")(lambda: None)  # type: ignore[call-overload]


def test_a_resource_that_outlives_what_it_is_made_from_is_refused() -> None:
    def outlives(db: Any) -> None: ...

    outlives.__annotations__ = {"db": Annotated[Session, session]}

    @workflow
    def wants(ctx: Any, it: Any) -> None: ...

    wants.__dict__["resources"] = {"it": resource(per="slot")(outlives)}
    with pytest.raises(ConfigurationError, match="ends with an attempt"):
        Registry([wants])
