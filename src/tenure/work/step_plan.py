"""Reads off a workflow's code which steps it has, and whether recorded steps fit it, before anything of it runs.

It reads the source, so it knows what is written there: `ctx.step("name", ...)` with a literal name, and calls of `@step` functions, also in functions of the
user's that the workflow calls. Only what follows one after the other, outside of loops, branches and concurrent calls, has an order. What cannot be known is
no misfit: the rules of `step_log` find it when it happens.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tenure.work.step_calls import StepFunction

MOST_DEPTH = 5
"""So deep functions that call each other are read."""
_STRAIGHT = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.With, ast.AsyncWith)

_ASIDE = (
    *(ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
"""A step below one of these may not run, or run often, or run elsewhere."""


class StepPlan(NamedTuple):
    """The steps of one workflow, as its source has them."""

    names: frozenset[str]
    straight: tuple[str, ...]
    """The steps that run in every attempt, in this order, each once."""
    complete: bool
    """True when no step can have another name than these."""


def misfit(function: Callable[..., Any], recorded: Sequence[str]) -> str:
    """Returns what does not fit between recorded steps, in their order, and the code that is to go on with them; nothing when nothing is known to."""
    plan = plan_of(function)
    if plan is None:
        return ""
    if plan.complete and (gone := next((name for name in recorded if name not in plan.names), "")):
        return f"step {gone!r} was removed, and is recorded"
    kept = [name for name in recorded if name in plan.straight]
    place = {name: number for number, name in enumerate(plan.straight)}
    for before, after in itertools.pairwise(kept):
        if place[before] > place[after]:
            return f"step {after!r} comes before step {before!r}, and came after it when they were recorded"
    known = set(recorded)
    last = max((place[name] for name in kept), default=-1)
    added = next((name for name in plan.straight[: last + 1] if name not in known), "")
    if added:
        follower = next(name for name in plan.straight[place[added] :] if name in known)
        return f"step {added!r} was added before step {follower!r}, which is recorded"
    return ""


@functools.lru_cache(maxsize=256)
def plan_of(function: Callable[..., Any]) -> StepPlan | None:
    """Returns the plan of a workflow; None where its source cannot be read."""
    reader = _Reader()
    plain = inspect.unwrap(function)
    if not isinstance(plain, types.FunctionType) or not reader.read(plain, 0):
        return None
    # A step that also stands in a loop or a branch, or twice, may come at another place than its first.
    straight = tuple(
        name for name in reader.straight if reader.straight.count(name) == 1 and name not in reader.scattered
    )
    return StepPlan(frozenset(reader.straight) | reader.scattered, straight, reader.complete)


class _Reader:
    """Collects the steps of a function and of those that it calls."""

    def __init__(self) -> None:
        self.straight: list[str] = []
        self.scattered: set[str] = set()
        """Steps in loops, branches, concurrent calls and functions that are called."""
        self.complete = True
        self._seen: set[types.FunctionType] = set()

    def read(self, function: types.FunctionType, depth: int) -> bool:
        """Returns False for a function without source."""
        if function in self._seen:
            return True
        self._seen.add(function)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError, ValueError):
            return False
        [defined, *_] = tree.body
        if not isinstance(defined, ast.FunctionDef | ast.AsyncFunctionDef):
            return False  # a lambda
        first = defined.args.posonlyargs + defined.args.args
        context = first[0].arg if first and depth == 0 else ""
        self._body(defined.body, function, context, straight=depth == 0, depth=depth)
        return True

    def _body(
        self, body: Sequence[ast.stmt], function: types.FunctionType, context: str, *, straight: bool, depth: int
    ) -> None:
        for statement in body:
            if isinstance(statement, ast.With | ast.AsyncWith):
                for item in statement.items:
                    self._calls(item.context_expr, function, context, straight=straight, depth=depth)
                self._body(statement.body, function, context, straight=straight, depth=depth)
            else:
                plain = straight and isinstance(statement, _STRAIGHT)
                self._calls(statement, function, context, straight=plain, depth=depth)
            # What comes after a branch that may leave is not run in every attempt.
            if straight and not isinstance(statement, _STRAIGHT) and _may_leave(statement):
                straight = False

    def _calls(self, node: ast.AST, function: types.FunctionType, context: str, *, straight: bool, depth: int) -> None:
        """Looks at the calls below a node, in the order in which they are made."""
        straight = straight and not isinstance(node, _ASIDE)
        if isinstance(node, ast.Call):
            name, is_step = self._step_of(node, function, context)
            # The arguments of a call that is no step may be coroutines that run at once: asyncio.gather(ctx.step(...), ...).
            awaited_at_once = straight and is_step
            for child in ast.iter_child_nodes(node):
                self._calls(child, function, context, straight=awaited_at_once, depth=depth)
            if is_step and not name:
                self.complete = False
            elif is_step and straight:
                self.straight.append(name)
            elif is_step:
                self.scattered.add(name)
            else:
                self._other(node, function, context, depth)
            return
        for child in ast.iter_child_nodes(node):
            self._calls(child, function, context, straight=straight, depth=depth)

    def _step_of(self, node: ast.Call, function: types.FunctionType, context: str) -> tuple[str, bool]:
        """Returns the name of the step that a call is, and whether it is one."""
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr == "step" and _is_name(called.value, context):
            first = node.args[0] if node.args else None
            text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
            return text, True
        if isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute) and called.func.attr == "keyed":
            called = called.func.value
        found = _resolved(called, function)
        return (found.step_name, True) if isinstance(found, StepFunction) else ("", False)

    def _other(self, node: ast.Call, function: types.FunctionType, context: str, depth: int) -> None:
        """Looks into a function that is called, if it can be found. One that is handed the context may do anything with it."""
        given = [*node.args, *(one.value for one in node.keywords)]
        handed = any(_is_name(one, context) for one in given)
        found = _resolved(node.func, function)
        target = inspect.unwrap(found) if callable(found) else found
        readable = isinstance(target, types.FunctionType) and target.__module__ == function.__module__
        if handed:
            self.complete = False
        elif readable and depth < MOST_DEPTH:
            assert isinstance(target, types.FunctionType)
            self.complete = self.read(target, depth + 1) and self.complete


def _may_leave(statement: ast.stmt) -> bool:
    return any(isinstance(one, ast.Return | ast.Raise) for one in ast.walk(statement))


def _is_name(node: ast.AST, name: str) -> bool:
    return bool(name) and isinstance(node, ast.Name) and node.id == name


def _resolved(node: ast.AST, function: types.FunctionType) -> Any:
    """Returns the object that a name, or an attribute of a module, stands for; None where that is not known."""
    if isinstance(node, ast.Name):
        return function.__globals__.get(node.id)
    if isinstance(node, ast.Attribute):
        holder = _resolved(node.value, function)
        return getattr(holder, node.attr, None) if isinstance(holder, types.ModuleType) else None
    return None
