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


def test_an_effect_may_come_at_the_very_moment_of_its_return():
    check_real_time([Span(5, 9, "c"), Span(1, 5, "b")], "things")
    with pytest.raises(Violation, match="things: b had returned before c was called"):
        check_real_time([Span(6, 9, "c"), Span(1, 5, "b")], "things")


def test_who_was_called_last_counts_not_who_came_last():
    with pytest.raises(Violation, match="b had returned before c was called"):
        check_real_time([Span(6, 9, "c"), Span(0, 7, "a"), Span(1, 5, "b")], "things")
    with pytest.raises(Violation, match="a had returned before b was called"):
        check_real_time([Span(6, 9, "b"), Span(0, 5, "a"), Span(8, 9, "c")], "things")


def test_what_never_ended_ended_later_than_anything():
    year_2100_ns = 4_102_444_800 * 10**9
    assert year_2100_ns < NEVER_NS < 1 << 63, "a time as others are, of 64 bits"


def test_a_run_without_trouble_was_calm_from_the_beginning():
    history = History("local", [], [], {}, 0)
    assert (history.calm_ns, history.commits, history.seen) == (0, [], {})


def test_an_effect_that_had_ended_before_an_earlier_one_began_is_a_violation():
    with pytest.raises(Violation, match="b had returned before c was called") as found:
        check_real_time([Span(0, 5, "a"), Span(6, 9, "c"), Span(1, 2, "b")], "things")
    assert found.value.kind == "not linearizable"


def test_names_must_be_unique():
    check_unique(["a", "b"], "twice", "names")
    with pytest.raises(Violation, match="twice: names: a occurs twice"):
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
    # Whoever has written down a digest finds out later whether a run is still the same.
    assert trace("a", "b").digest() == "a1441b22e5c94aa7048a56dac5061fa5"
    assert trace("a", "b").digest() == trace("a", "b").digest() != trace("b", "a").digest()


def test_a_trace_tells_the_time_of_each_event_in_seconds():
    times_ns = iter([0, 1_234_567_000, 5_000_000_000_000])
    trace = Trace(lambda: next(times_ns))
    for event in "abc":
        trace.note(event)
    assert trace.lines == ["0.000000 a", "1.234567 b", "5000.000000 c"]
