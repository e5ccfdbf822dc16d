import pytest

from onceward.testing.simulation.history import (
    NEVER_NS,
    Answer,
    Call,
    History,
    Span,
    Stored,
    Trace,
    Violation,
    check_real_time,
    check_unique,
    violated,
)


def test_a_call_goes_by_its_first_answer():
    call = Call("c-1", "c", "hello", 5)
    assert call.returned_ns == NEVER_NS
    call.answers += [Answer(9, "a.1", "one"), Answer(12, "b.1", "two")]
    assert (call.answer, call.returned_ns) == ("one", 9)


def test_final_values_are_found_by_partition():
    final = {("p", "a"): Stored(1, None), ("q", "a"): Stored(2, None), ("p", "b"): Stored(3, 9)}
    assert History("local", [], [], final, 0).values("p") == {"a": 1, "b": 3}


def test_effects_in_the_order_of_their_spans_pass():
    check_real_time([Span(0, 5, "a"), Span(3, 4, "b"), Span(6, NEVER_NS, "c")], "things")
    check_real_time([Span(3, 4, "b"), Span(0, 5, "a"), Span(5, 9, "c")], "things")
    check_real_time([], "things")


def test_an_effect_that_had_ended_before_an_earlier_one_began_is_a_violation():
    with pytest.raises(Violation, match="b had returned before c was called") as found:
        check_real_time([Span(0, 5, "a"), Span(6, 9, "c"), Span(1, 2, "b")], "things")
    assert found.value.kind == "not linearizable"


def test_names_must_be_unique():
    check_unique(["a", "b"], "twice", "names")
    with pytest.raises(Violation, match="twice: names: a is there twice"):
        check_unique(["a", "b", "a"], "twice", "names")


def test_a_violation_has_a_kind():
    with pytest.raises(Violation, match="lost: the plot") as found:
        violated("lost", "the plot")
    assert found.value.kind == "lost"


def test_equal_traces_have_equal_digests():
    def trace(*lines):
        trace = Trace(lambda: 1_500_000_000)
        for line in lines:
            trace.note(line)
        return trace

    assert trace("a", "b").lines == ["1.500000 a", "1.500000 b"]
    assert trace("a", "b").digest() == trace("a", "b").digest() != trace("b", "a").digest()
