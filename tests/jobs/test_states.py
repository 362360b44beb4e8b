from __future__ import annotations

import itertools

import pytest

from tenure.errors import IllegalTransitionError
from tenure.jobs import JobState, WorkflowState
from tenure.jobs.states import JOB_TRANSITIONS, WORKFLOW_TRANSITIONS, check_job_transition, check_workflow_transition


def test_both_tables_name_every_state() -> None:
    assert set(JOB_TRANSITIONS) == set(JobState)
    assert set(WORKFLOW_TRANSITIONS) == set(WorkflowState)


@pytest.mark.parametrize("state", [state for state in JobState if state.terminal])
def test_nothing_leads_out_of_a_terminal_state_of_a_job(state: JobState) -> None:
    for new in JobState:
        with pytest.raises(IllegalTransitionError, match="cannot go from"):
            check_job_transition("j", state, new)


def test_a_terminal_state_has_no_way_out_and_every_other_has_one() -> None:
    for job in JobState:
        assert job.terminal == (not JOB_TRANSITIONS[job])
    for workflow in WorkflowState:
        assert workflow.terminal == (not WORKFLOW_TRANSITIONS[workflow])


def test_every_live_state_can_be_cancelled() -> None:
    for state in WorkflowState:
        assert state.terminal or WorkflowState.CANCELLED in WORKFLOW_TRANSITIONS[state]


def test_exactly_the_transitions_of_the_table_are_legal() -> None:
    for old, new in itertools.product(WorkflowState, WorkflowState):
        if new in WORKFLOW_TRANSITIONS[old]:
            check_workflow_transition("j", "w", old, new)
        else:
            with pytest.raises(IllegalTransitionError, match="workflow 'w' of job 'j'"):
                check_workflow_transition("j", "w", old, new)
