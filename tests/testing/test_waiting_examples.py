"""The examples of work that waits, in manual time: days pass in a moment, and nothing holds a slot meanwhile."""

from __future__ import annotations

import pytest
from examples import careful_research_agent as agent
from examples import drip_campaign, expense_approval

from tenure.jobs.states import JobState
from tenure.testing import TestDatacenter


@pytest.fixture(autouse=True)
def _nothing_happened() -> None:
    for noted in (expense_approval.paid, expense_approval.asked, drip_campaign.sent, agent.bought):
        noted.clear()


def test_a_small_expense_is_paid_and_a_large_one_waits_for_the_one_who_approves(tenure_dc: TestDatacenter) -> None:
    tenure_dc.serve(expense_approval.expense)
    small = tenure_dc.submit(expense_approval.expense, who="ada", amount=12.5)
    assert small.wait().paid
    large = tenure_dc.submit(expense_approval.expense, who="grace", amount=950.0)
    tenure_dc.advance(seconds=30)
    assert large.status().workflows[0].waits_for.startswith("signal 'approved'")
    for _ in range(2):  # somebody clicks twice
        large.signal("approved", {"yes": True, "by": "the boss"}, id="click")
    assert large.wait() == expense_approval.Outcome(True, "the boss approved it")
    assert (len(expense_approval.asked), len(expense_approval.paid), large.attempts) == (1, 2, 1)
    refused = tenure_dc.submit(expense_approval.expense, who="eve", amount=950.0)
    refused.signal("approved", {"yes": False, "by": "the boss"})
    assert refused.wait() == expense_approval.Outcome(False, "the boss refused it")


def test_a_campaign_sends_its_mails_over_two_weeks_and_stops_when_somebody_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drip_campaign, "DAY_S", 10.0)  # a whole day of a test datacenter is played in about a minute
    with TestDatacenter([drip_campaign.campaign], slots=1) as datacenter:
        silent = datacenter.submit(drip_campaign.campaign, to="ada")
        answers = datacenter.submit(drip_campaign.campaign, to="bob")
        datacenter.advance(seconds=20)
        assert len(drip_campaign.sent) == 2
        answers.signal("answered", "tell me more")
        datacenter.advance(seconds=20)
        assert answers.wait() == "bob answered 'tell me more' after 'welcome'"
        assert drip_campaign.sent[2:] == ["how it works to ada"]
        datacenter.advance(seconds=115)
        assert silent.wait() == "ada never answered"
        assert [mail for mail in drip_campaign.sent if mail.endswith("ada")] == [
            f"{subject} to ada" for subject, _ in drip_campaign.MAILS
        ]
        assert (silent.attempts, silent.state) == (1, JobState.COMPLETED)


def test_an_agent_asks_before_it_spends_and_hands_the_summary_to_another_as_a_child_job(
    tenure_dc: TestDatacenter,
) -> None:
    tenure_dc.serve(agent.summarise)
    job = tenure_dc.submit(agent.research, question="Which lighthouse is the tallest?")
    tenure_dc.advance(seconds=30)
    waits = job.status().workflows[0].waits_for
    assert waits.startswith("signal 'approve read_source 2-call-0'")
    assert agent.bought == []
    job.signal("approve read_source 2-call-0", {"approved": True, "by": "ada"})
    tenure_dc.advance(seconds=30)
    assert job.wait() == "The tallest lighthouse is the Jeddah Light: 133 metres."
    assert agent.bought == ["the journal for 30.00, call 2-call-0"]
    children = [row.job_id for row in tenure_dc.jobs().jobs if row.job_id != job.id]
    assert children == [f"{job.id}/research/3-call-0"]
    assert job.attempts == 1


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (False, "the call of read_source was refused"),
        ({"approved": False, "by": "ada", "reason": "too dear"}, "was refused by ada: too dear"),
    ],
)
def test_what_nobody_approves_is_not_done_and_the_model_hears_why(
    tenure_dc: TestDatacenter, monkeypatch: pytest.MonkeyPatch, said: object, error: str
) -> None:
    heard: list[str] = []

    def answer(request: agent.ModelRequest) -> agent.ModelSaid:
        heard.extend(turn.text for turn in request.turns if type(turn).__name__ == "ToolAnswered")
        return agent.says("no answer") if heard else agent.ANSWERS["Which lighthouse is the tallest?"][1]

    monkeypatch.setattr(agent, "model", lambda: agent.ScriptedAdapter([answer] * 4))
    job = tenure_dc.submit(agent.research, question="Which lighthouse is the tallest?")
    tenure_dc.advance(seconds=20)
    job.signal("approve read_source 1-call-0", said)
    assert job.wait() == "no answer"
    assert error in heard[0]
    assert agent.bought == []
