import pytest

from onceward.testing.simulation import Call, History, Violation
from onceward.testing.simulation.core.registers import Registers
from onceward.testing.simulation.history import Answer, Stored
from tests.testing.simulation.core.judging import Judged


def call(number, what, seen=None, how="done", *, token=None, during=None):
    """The call of one client after the other, or `during` some time."""
    called_ns, returned_ns = during or (10 * number, 10 * number + 5)
    made = Call(f"c-{number}", "c", (what, 0, False), called_ns)
    made.answers.append(Answer(returned_ns, "a.1", [token or f"c-{number}@a.1:1", seen, how]))
    return made


def judge(calls, final=None):
    scenario = Registers()
    scenario.count = 1
    stored = {} if final is None else {("register", "0"): Stored(final, None)}
    scenario.judge(History("shared", calls, [], stored, 0))


FIRST = "c-1@a.1:1"


def test_what_a_calm_run_shows_is_right():
    assert len(Judged(Registers).history.calls) >= 24


@pytest.mark.parametrize(
    ("calls", "final"),
    [
        ([call(1, "write"), call(2, "read", FIRST), call(3, "erase", FIRST)], None),
        ([call(1, "create"), call(2, "create", FIRST, "refused")], FIRST),
        ([call(1, "swap"), call(2, "refuse", FIRST, "refused"), call(3, "find", FIRST)], FIRST),
        # The execution that was answered, and another one that only the value tells of.
        ([call(1, "write")], "c-1@b.1:7"),
        ([call(1, "create"), call(2, "erase", FIRST), call(3, "read", "c-1@b.1:7")], "c-1@b.1:7"),
        ([call(1, "write"), call(2, "erase", "c-1@b.1:7")], None),
    ],
)
def test_right_histories_pass(calls, final):
    judge(calls, final)


@pytest.mark.parametrize(
    ("calls", "final"),
    [
        ([call(1, "write"), call(2, "read", None)], FIRST),
        ([call(1, "write"), call(2, "find", None)], FIRST),
        ([call(1, "write"), call(2, "refuse", None, "refused")], FIRST),
        ([call(1, "create"), call(2, "create")], "c-2@a.1:1"),
        ([call(1, "write"), call(2, "swap", None)], "c-2@a.1:1"),
        ([call(1, "write"), call(2, "write")], FIRST),
        ([call(1, "write")], None),
        ([call(1, "write"), call(2, "erase", FIRST)], FIRST),
        ([call(1, "write"), call(2, "erase", None)], None),
        # What a function put and then raised must not be seen.
        ([call(1, "refuse", None, "refused"), call(2, "read", FIRST)], None),
        ([call(1, "refuse", None, "refused")], "c-1@b.1:7"),
    ],
)
def test_wrong_histories_are_not_linearizable(calls, final):
    with pytest.raises(Violation) as found:
        judge(calls, final)
    assert found.value.kind == "not linearizable"


def test_an_erase_that_was_answered_differently_was_applied_twice():
    erase = call(2, "erase", FIRST)
    erase.answers.append(Answer(99, "b.1", ["c-2@b.1:1", None, "done"]))
    with pytest.raises(Violation, match="more than once") as found:
        judge([call(1, "write"), erase])
    assert found.value.kind == "applied twice"


def test_an_answer_that_comes_twice_counts_once():
    write = call(1, "write")
    write.answers.append(write.answers[0]._replace(returned_ns=99))
    judge([write, call(2, "write")], "c-2@a.1:1")
