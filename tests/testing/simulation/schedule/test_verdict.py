import pytest

from onceward.engine.base import Put
from onceward.testing.simulation import Weather
from onceward.testing.simulation.history import Answer, Applied, Call, Stored
from onceward.testing.simulation.schedule import Jobs
from onceward.testing.simulation.schedule.verdict import judge_jobs, judge_records
from onceward.testing.simulation.world import World
from tests.testing.simulation.schedule.story import Story, violates


class Hand(Story):
    """Stories whose records are too few for the rules of the schedule."""

    def judge(self, monkeypatch) -> dict[str, int]:
        module = "onceward.testing.simulation.schedule.verdict"
        monkeypatch.setattr(f"{module}.judge_records", lambda history: None)
        history = self.history
        judge_jobs(history)
        return history.seen


@pytest.fixture
def story() -> Hand:
    story = Hand()
    story.send("j", line="q/k")
    story.claim("j")
    story.complete("j", line="q/k")
    return story


@pytest.fixture
def wrong(story, monkeypatch):
    return lambda kind, match=None: violates(kind, lambda: story.judge(monkeypatch), match)


def test_a_story_that_ends_well_is_right(story, monkeypatch):
    assert sum(story.judge(monkeypatch).values()) == 0


def test_an_acknowledged_message_that_is_not_there_is_lost(story, wrong):
    story.calls[0].answers[0] = story.calls[0].answers[0]._replace(body=["other"])
    wrong("lost", "c0-1 got")


def test_a_message_is_lost_whatever_else_clients_asked_before(story, wrong):
    story.calls.insert(0, Call("c1-1", "c1", ["look"], 0, [Answer(1, "a.1", "nothing")]))
    story.calls[1].answers[0] = story.calls[1].answers[0]._replace(body=["other"])
    wrong("lost", "c0-1 got")


def test_messages_in_a_line_are_in_the_order_of_their_calls(story, wrong):
    story.send("k", line="q/k", message="c0-2")
    story.claim("k")
    story.complete("k", line="q/k")
    story.calls[1].called_ns = -2
    story.calls[1].answers[0] = story.calls[1].answers[0]._replace(returned_ns=-1)
    wrong("not linearizable")


def test_what_a_job_sends_is_no_message_of_a_client(story, monkeypatch):
    sent = {"id": "f", "line": "q/k", "due_ms": 0, "attempts_max": 0}
    story.send("k", line="q/k", message="c0-2")
    story.claim("k")
    story.complete("k", line="q/k")
    story.commit(
        ("sent", "after k", [sent]), ("job#0000", "f#job", {"stage": "ready", "attempt": 0})
    )
    story.claim("f")
    story.complete("f", line="q/k")
    story.judge(monkeypatch)


def test_a_job_that_has_not_ended_is_lost(story, wrong):
    story.send("k", message="c0-2")
    wrong("lost", "has not ended")


def test_two_effects_are_found(story, wrong):
    key = ("effect", "j")
    [effect] = story.final[key].value
    story.final[key] = Stored([effect, effect], None)
    wrong("applied twice")


def test_an_effect_of_another_attempt_is_found(story, wrong):
    story.final["effect", "j"] = Stored([{"attempt": 1, "token": "other", "follow": None}], None)
    wrong("lost")


def test_an_effect_of_another_number_is_miscounted(story, wrong):
    story.final["effect", "j"] = Stored([{"attempt": 2, "token": "j:1", "follow": None}], None)
    wrong("miscounted")


def test_a_missing_effect_is_lost(story, wrong):
    del story.final["effect", "j"]
    wrong("lost")


def test_an_effect_without_a_job_is_unsent(story, wrong):
    story.final["effect", "x"] = story.final["effect", "j"]
    wrong("unsent")


def test_a_log_in_another_order_is_found(story, wrong):
    story.send("k", line="q/k", message="c0-2")
    story.claim("k")
    story.complete("k", line="q/k")
    story.final["log", "q/k"] = Stored(["k", "j"], None)
    wrong("out of order")


def test_failed_jobs_are_left_out_of_the_log(story, monkeypatch):
    story.send("d", line="q/k", attempts_max=1, message="c0-2")
    story.claim("d")
    story.act("fail", "d", "failed", due_ms=0)
    assert story.judge(monkeypatch)["job failed"] == 1


def test_a_claim_that_was_told_and_is_not_there_is_found(story, wrong):
    story.tell("claimed", ["j", 1, "other", 0])
    wrong("told", "contradicts")


def test_an_act_that_was_told_and_is_not_there_is_found(story, wrong):
    story.tell("did", ["act 9", "complete", "j:1"])
    wrong("told", "but the record is None")


def test_a_refusal_of_what_was_done_is_found(story, wrong):
    story.tell("refused", ["act 1", "complete", "j:1"])
    wrong("told")


def test_a_refusal_before_the_end_of_the_lease_is_found(story, wrong):
    story.at_s = 2.5
    story.tell("refused", ["act 9", "complete", "j:1"])
    wrong("told", "but it held")


def test_a_refusal_at_the_end_of_the_lease_is_right(story, monkeypatch):
    story.tell("refused", ["act 9", "extend", "j:1"])
    assert sum(story.judge(monkeypatch).values()) == 0


@pytest.mark.parametrize("late_s", [None, 0, 1e-9])
def test_a_worker_is_late_if_it_is_at_work_after_its_lease_ran_out(story, monkeypatch, late_s):
    story.send("k", attempts_max=1, message="c0-2")
    story.claim("k")
    story.at_s += 20
    story.change("k", "failed", 1)
    if late_s is not None:
        story.at_s += late_s
        story.tell("refused", ["act 9", "extend", "k:1"])
    seen = story.judge(monkeypatch)
    assert seen["lease ran out"] == 1
    assert seen["lease ran out at work"] == bool(late_s)


def test_late_workers_are_counted(story, monkeypatch):
    story.send("k", message="c0-2")
    story.claim("k")
    story.at_s += 20
    story.change("k", "ready", 1)
    story.at_s += 1
    story.tell("refused", ["act 9", "complete", "k:1"])
    story.claim("k", 2)
    story.complete("k", 2)
    seen = story.judge(monkeypatch)
    assert seen["stale completion refused"] == seen["lease ran out at work"] == 1


def test_a_dispatcher_that_could_not_act_is_found(story, wrong):
    story.tell("trouble", "due#0000/x: ValueError()")
    wrong("trouble", "could not act")


def calm_run():
    return World(Jobs(), 0, "shared", 2, Weather()).run()


def test_the_records_of_a_calm_run_fit_together():
    history = calm_run()
    judge_records(history)
    assert any(key[0].startswith("job#") for key in history.final)


def test_an_entry_without_a_job_is_found_in_the_end():
    history = calm_run()
    history.final["ready#0000#q", "x"] = Stored("0" * 29, None)
    violates("records", lambda: judge_records(history), "in the end: ready#0000#q/x: ")
    violates("records", lambda: judge_jobs(history), "in the end: ready#0000#q/x: ")


def test_an_entry_without_a_job_is_found_on_the_way():
    history = calm_run()
    stray = Put(("due#0000", f"{0:016d}#{0:029d}#job"), b'"job"')
    history.commits.insert(1, Applied(0, 0, [stray]))
    violates("records", lambda: judge_records(history), "after commit")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_short_history_is_looked_at_after_each_commit(number):
    story = Story()
    stray = ("due#0000", f"{0:016d}#{0:029d}#job")
    for other in range(1, 5):
        if other == number:
            story.commit((*stray, "job"))
        else:
            story.commit(("config", "other", other), delete=(stray,))
    violates("records", lambda: judge_records(story.history), f"after commit {number}: due#0000/")
