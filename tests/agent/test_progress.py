from __future__ import annotations

from tenure.agent import ModelSaid, ProgressJudge, ToolCall
from tenure.agent.events import ToolAnswered
from tenure.agent.progress import canonical

CALL = ToolCall("c", "status", '{"job": 1}')


def turn(judge: ProgressJudge, said: str, call: ToolCall, answer: str) -> None:
    judge.model_said(ModelSaid(said, (call,)))
    judge.tool_answered(call, answer)
    judge.turn_over()


def test_a_call_is_a_step_until_its_name_arguments_and_result_were_all_seen() -> None:
    judge = ProgressJudge()
    assert judge.tool_answered(CALL, "pending")
    assert not judge.tool_answered(ToolCall("d", "status", '{"job":1}'), "pending")
    assert judge.tool_answered(CALL, "done")
    assert judge.tool_answered(ToolCall("e", "status", '{"job": 2}'), "pending")
    assert judge.steps == 3


def test_new_words_around_the_same_call_do_not_hide_that_it_spins() -> None:
    judge = ProgressJudge(idle_turns=3)
    for number in range(4):
        assert judge.spinning() is None
        turn(judge, f"let me look again ({number})", CALL, "pending")
    assert judge.spinning() == '3 turns in a row without progress: status({"job":1}) -> pending, 3 times again'


def test_one_step_starts_the_count_anew() -> None:
    judge = ProgressJudge(idle_turns=2)
    for answer in ("pending", "pending", "running", "running"):
        turn(judge, "look", CALL, answer)
    assert judge.spinning() is None
    turn(judge, "look", CALL, "running")
    assert judge.spinning() is not None


def test_two_calls_in_alternation_are_spinning_as_well() -> None:
    judge = ProgressJudge(idle_turns=3)
    for number in range(5):
        turn(judge, "", ToolCall("c", "ab"[number % 2]), "x")
    assert judge.spinning() is not None


def test_an_answer_without_new_tokens_is_no_step() -> None:
    judge = ProgressJudge(idle_turns=2)
    assert judge.model_said(ModelSaid("same"))
    judge.turn_over()
    for said in ("same", ""):
        assert not judge.model_said(ModelSaid(said))
        judge.turn_over()
    assert (
        judge.spinning() == "2 turns in a row without progress: said 'same', 1 times again; said nothing, 1 times again"
    )


def test_a_stream_is_new_from_the_first_token_that_no_earlier_answer_had_there() -> None:
    judge = ProgressJudge()
    judge.model_said(ModelSaid("I will read it", (ToolCall("c", "read", '{"p":1}'),)))
    listener = judge.listen()
    assert [listener.hears(chunk) for chunk in ("I will", " read it", "read", '{"p":', "2}")] == [False] * 4 + [True]
    again = judge.listen()
    assert not any(again.hears(chunk) for chunk in ("I will read it", "", "read", '{"p":1}'))


def test_the_order_of_keys_and_white_space_make_no_other_call() -> None:
    assert canonical('{"b": 1, "a": [2]}') == canonical('{"a":[2],"b":1}')
    assert canonical('{"b":') == '{"b":'


def test_a_judge_that_learnt_an_earlier_delivery_knows_its_repetitions() -> None:
    first, second = ProgressJudge(idle_turns=2), ProgressJudge(idle_turns=2)
    turn(first, "look", CALL, "pending")
    second.replay([ModelSaid("look", (CALL,)), *_answers()])
    for judge in (first, second):
        turn(judge, "look", CALL, "pending")
        turn(judge, "look", CALL, "pending")
        assert judge.spinning() is not None


def _answers() -> list[ToolAnswered]:
    return [ToolAnswered(CALL, "pending")]


def test_the_same_thoughts_again_are_as_old_as_the_same_words_and_new_ones_are_no_step() -> None:
    judge = ProgressJudge()
    thought = {"type": "thinking", "thinking": "Let me see."}
    judge.model_said(ModelSaid("four", thoughts=(thought,)))
    steps = judge.steps
    same, other = judge.listen(), judge.listen()
    assert not any(same.hears(chunk) for chunk in ("Let me", " see.", "four"))
    assert [other.hears(chunk) for chunk in ("Let me", " think.")] == [False, True]
    assert not judge.model_said(ModelSaid("four", thoughts=({**thought, "thinking": "Let me think."},)))
    assert judge.steps == steps
