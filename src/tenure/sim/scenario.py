"""A scenario describes one kind of run: its participants, its faults, and the invariants that must hold.

A `Scenario` object is made for each run and may keep that run's observations. `run_one` plays one seed and says what
came of it; it never raises for a failure of what it runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeGuard

from tenure.errors import ConfigurationError, InvariantError
from tenure.randomness import Random
from tenure.sim.faults import Fault, FaultProfile, schedule
from tenure.sim.kernel import Limits
from tenure.sim.network import NetworkLink
from tenure.sim.world import World

LOOK_EVERY_S = 1.0


class Scenario(ABC):
    """One kind of run. Subclass it; state that it keeps belongs to one run."""

    duration_s: ClassVar[float] = 30.0
    """The length of a run. Faults end before it does, so that the nodes have time to settle."""
    faults: ClassVar[FaultProfile] = FaultProfile()
    link: ClassVar[NetworkLink] = NetworkLink()
    limits: ClassVar[Limits] = Limits()
    planned: Sequence[Fault] = ()
    """The faults of this run, in the order of time."""

    @abstractmethod
    def setup(self, world: World) -> None:
        """Make the nodes and start them."""

    def misfortunes(self, world: World, random: Random) -> tuple[Fault, ...]:
        """Returns the faults of this run, in the order of time."""
        return self.faults.generate(random, list(world.nodes), world.engines) if self.faults.most else ()

    def check(self, world: World) -> None:  # noqa: B027  a scenario may look only at the end
        """Called after each recorded event. Raise, or use `require`, when a promise is broken."""

    def settled(self, world: World) -> bool:
        """Asked every second of a run: whether nothing more is to come, so that the run may end before its time."""
        return False

    def finish(self, world: World) -> None:  # noqa: B027
        """Called at the end, when all faults are over."""

    def tally(self, world: World) -> Mapping[str, int]:
        """Returns counts of the events of this run, so that tests can ask whether a thousand runs saw everything."""
        return {}

    @staticmethod
    def require(holds: object, promise: str) -> None:
        """Break the run when a promise does not hold."""
        if not holds:
            raise InvariantError(promise)


Make = Callable[[], Scenario]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of one run. It holds only plain data, so that it crosses processes."""

    scenario: str
    seed: int
    faults: tuple[Fault, ...]
    """All that the seed generated."""
    chosen: tuple[int, ...]
    """Which of them happened."""
    digest: str
    steps: int
    events: int
    ended_s: float
    failure: str = ""
    """Empty when every promise held; otherwise the error in one line."""
    details: str = ""
    """The error with its traceback."""
    trace: tuple[str, ...] = ()
    tally: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.failure

    @property
    def command(self) -> str:
        """Replays this very run."""
        chosen = ",".join(map(str, self.chosen)) or "none"
        some = f" --faults {chosen}" if len(self.chosen) != len(self.faults) else ""
        return f"python -m tenure.sim replay {self.scenario} --seed {self.seed}{some}"


def run_one(
    make: Make, seed: int, *, only: Sequence[int] | None = None, name: str | None = None, keep_trace: bool = False
) -> RunOutcome:
    """Play one seed, with all the faults that it generates or only some of them."""
    scenario = make()
    profile, failure, details = scenario.faults, "", ""
    faults: tuple[Fault, ...] = ()
    if profile.most and profile.until_s + profile.duration_s[1] > scenario.duration_s:
        raise ConfigurationError(
            f"faults may last until {profile.until_s + profile.duration_s[1]} s and the run until {scenario.duration_s} s",
            remedy="Lengthen duration_s: all faults end within a run",
        )
    with World(seed, link=scenario.link, limits=scenario.limits, keep_trace=None if keep_trace else 200) as world:
        try:
            scenario.setup(world)
            faults = scenario.misfortunes(world, world.random("faults"))
            chosen = tuple(range(len(faults))) if only is None else tuple(only)
            scenario.planned = [faults[number] for number in chosen]
            schedule(world, scenario.planned)
            world.kernel.after_step = _checker(scenario, world)
            _run(scenario, world)
            world.require_no_unread_errors()
            scenario.finish(world)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}".strip()
            details = "".join(traceback.format_exception(error))
        return RunOutcome(
            scenario=name or reference(make),
            seed=seed,
            faults=faults,
            chosen=chosen if faults else (),
            digest=world.trace.digest(),
            steps=world.kernel.steps,
            events=world.trace.events,
            ended_s=world.now,
            failure=failure,
            details=details,
            trace=tuple(world.trace.lines()) if keep_trace or failure else (),
            tally=dict(scenario.tally(world)),
        )


def _run(scenario: Scenario, world: World) -> None:
    over = False

    def look() -> None:
        nonlocal over
        over = scenario.settled(world)
        world.at(world.now + LOOK_EVERY_S, look)

    if type(scenario).settled is not Scenario.settled:
        world.at(LOOK_EVERY_S, look)
    world.run_for(scenario.duration_s, until=lambda: over)


def _checker(scenario: Scenario, world: World) -> Callable[[], None]:
    trace, seen = world.trace, 0

    def check() -> None:
        nonlocal seen
        if trace.marks != seen:
            seen = trace.marks
            scenario.check(world)

    return check


def reference(make: Make) -> str:
    """Returns the scenario's name on the command line."""
    if not isinstance(make, type):
        return repr(make)
    source = getattr(sys.modules.get(make.__module__), "__file__", None)
    if source and not make.__module__.startswith("tenure."):  # a test's module has a name only inside its test run
        return f"{_shortened(Path(source))}:{make.__qualname__}"
    return f"{make.__module__}:{make.__qualname__}"


def _shortened(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def find(name: str) -> type[Scenario]:
    """Returns the scenario that `module:Class` or `file.py:Class` names."""
    place, _, attribute = name.partition(":")
    if not attribute:
        raise ConfigurationError(
            f"{name!r} names no scenario", remedy="Name it as module:Class or file.py:Class; `list FILE` shows a file's"
        )
    found = getattr(_load(place), attribute, None)
    if not _is_scenario(found):
        raise ConfigurationError(f"{name} is no Scenario", remedy="Name a subclass of tenure.sim.Scenario")
    return found


def scenarios_in(place: str) -> list[type[Scenario]]:
    """Returns the scenarios that a module, or a file, defines, in its order."""
    module = _load(place)
    mine = getattr(module, "__name__", "")
    return [found for found in vars(module).values() if _is_scenario(found) and found.__module__ == mine]


def _is_scenario(found: object) -> TypeGuard[type[Scenario]]:
    return isinstance(found, type) and issubclass(found, Scenario)


def _load(place: str) -> object:
    if place.endswith(".py"):
        return _load_file(Path(place))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            str(error), remedy="Give the path of a file, or a module that can be imported"
        ) from error


def _load_file(path: Path) -> object:
    # Named by its whole path: two files named scenario.py are two modules, and one that is imported already is not loaded twice.
    name = _shortened(path.absolute()).with_suffix("").as_posix().strip("/").replace("/", ".")
    loaded = sys.modules.get(name)
    if loaded is not None and Path(loaded.__file__ or "").resolve() == path.resolve():
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.exists():
        raise ConfigurationError(f"there is no file {path}", remedy="Give the path from the current folder")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
