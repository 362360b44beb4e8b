"""Thousands of requests of every operation to a working datacenter: nothing that anybody sends may end a node, and honest work goes on.

The seed is the same in every `make test`, and another in each `make soak`; TENURE_FUZZ_SEED names one. A failure prints it, the requests that it takes, and
how to send them again. The order of requests is the seed's; which jobs they can name depends on what was accepted before, so that the written log, and not the
seed, is what is replayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tenure.control.messages.operations import OPERATIONS
from tests.fuzz.assault import Assault, Log, Outcome, Sent
from tests.fuzz.grammar import SEED, Grammar
from tests.fuzz.replay import explain
from tests.fuzz.site import FuzzedSite, Honest
from tests.soak import SOAK, sized

REQUESTS = sized("hostile requests to a datacenter", short=10_000, long=200_000)
"""To a datacenter on each engine."""
NEVER_DONE = {"gate", "tell_gate", "forward", "dead_letter", "create_token", "revoke_token", "move_job"}
"""What a manager does not do for a stranger: it is no gate, it has one worker, from which nothing can move, there is no dead letter whose id can be guessed, and a node that lets everybody in keeps no tokens."""


BRINGS_OTHERS = ("submit", "submit_many", "pause_job")
"""Without jobs that have not ended, and some that pause, there is nothing to resume, retime or signal."""
AGAIN, EACH_TIME = 40, 200


def requests(grammar: Grammar, count: int) -> Iterator[Sent]:
    for _ in range(count):
        yield grammar.request()


def only(grammar: Grammar, names: set[str]) -> Iterator[Sent]:
    operations = [one for one in OPERATIONS if one.name in names]
    for _ in range(EACH_TIME):
        chosen = grammar.random.choice(operations)
        yield chosen.name, grammar.body(chosen)


def insist(assault: Assault, grammar: Grammar, outcome: Outcome) -> set[str]:
    """Asks for what was never done again, and returns what is still undone: which jobs had ended when they were named is chance."""
    undone = set[str]()
    for _ in range(AGAIN):
        undone = {one.name for one in OPERATIONS} - set(outcome.accepted) - NEVER_DONE
        if not undone:
            break
        assault.run(only(grammar, undone | set(BRINGS_OTHERS)), grammar)
    return undone


@pytest.mark.slow
@pytest.mark.timeout(900 if not SOAK else 7_200)
@pytest.mark.parametrize("site", ["sqlite", "valkey"], indirect=True)
def test_no_request_ends_a_node_and_honest_jobs_complete(site: FuzzedSite) -> None:
    grammar = Grammar(Random(SEED))
    path = site.folder / "requests.log"
    log = Log(path)
    with Honest(site.client, "honest") as honest:
        assault = Assault(site.addresses["m-1"], log)
        outcome = assault.run(requests(grammar, REQUESTS), grammar)
        sent, undone = outcome.sent, insist(assault, grammar, outcome)
    log.close()
    try:
        assert not outcome.failures, outcome.failures[:5]
        site.check_unharmed()
        honest.check_all_completed(site.said()[-2_000:])
        assert len(honest.submitted) > 5
        assert sent == REQUESTS
        assert not undone, f"the fuzzer knows too little: these were never done: {undone}"
        site.restart()
        again = Honest(site.client, "again")
        for _ in range(5):
            again.submit()
        again.check_all_completed(site.said()[-2_000:])
        honest.check_all_completed(client=site.client)
        site.check_unharmed()
    except Exception as error:
        pytest.fail(f"{type(error).__name__}: {error}\n{explain(path, outcome.failures, SEED)}")
    print(f"seed {SEED}: {outcome}")


GATE_REQUESTS = sized("hostile requests to a gate", short=2_500, long=50_000)


@pytest.mark.slow
@pytest.mark.timeout(900 if not SOAK else 7_200)
def test_no_request_ends_a_gate_or_what_is_behind_it(site: FuzzedSite) -> None:
    gate = site.start_gate()
    grammar = Grammar(Random(SEED))
    path = site.folder / "requests.log"
    log = Log(path)
    with Honest(site.gate_client, "honest") as honest:
        outcome = Assault(site.gate_address, log).run(requests(grammar, GATE_REQUESTS), grammar)
    log.close()
    assert not outcome.failures, f"seed {SEED}, {path}: {outcome.failures[:5]}"
    assert gate.process.poll() is None, f"seed {SEED}: {gate.said()[-3_000:]}"
    site.check_unharmed()
    honest.check_all_completed(site.said()[-2_000:])
    assert outcome.sent == GATE_REQUESTS
    gate.kill()
    site.restart()
    gate = site.start_gate()
    again = Honest(site.gate_client, "again")
    for _ in range(5):
        again.submit()
    again.check_all_completed(site.said()[-2_000:])
    assert gate.process.poll() is None, f"seed {SEED}: {gate.said()[-3_000:]}"
    print(f"seed {SEED}: {outcome}")
