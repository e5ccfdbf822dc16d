import pytest

from onceward.testing.simulation.schedule.replay import replay
from tests.testing.simulation.schedule.story import Story, job, violates


@pytest.fixture
def story() -> Story:
    return Story()


def judged(story: Story) -> dict[str, int]:
    history = story.history
    replay(history)
    return {what: count for what, count in history.seen.items() if count}


def wrong(story: Story, kind: str, match: str | None = None) -> None:
    violates(kind, lambda: replay(story.history), match)


def test_a_job_that_is_sent_claimed_and_completed_is_right(story):
    story.send("j")
    story.claim("j")
    story.complete("j")
    followed = replay(story.history)
    assert followed.jobs["j"].stage == "succeeded"
    assert followed.jobs["j"].completed == "j:1"
    assert followed.attempts["j:1"].ended_ns == 3 * 10**9
    assert not followed.attempts["j:1"].ran_out


def test_who_let_a_lease_run_out_and_who_completed_a_job_is_known(story):
    story.send("j", attempts_max=1)
    story.claim("j", lease_s=5)
    story.at_s += 5
    story.change("j", "failed", 1)
    followed = replay(story.history)
    assert followed.attempts["j:1"].ran_out
    assert followed.attempts["j:1"].ended_ns == 8 * 10**9
    assert followed.jobs["j"].completed == "", "nobody"


def test_all_that_can_happen_to_a_job_is_counted(story):
    story.send("j", attempts_max=3)
    story.claim("j")
    story.act("extend", "j", until_ms=story.now_ms + 15_000)
    story.at_s += 20
    story.change("j", "ready", 1)  # the lease ran out
    story.claim("j", 2)
    story.act("release", "j", "ready", 2)
    story.claim("j", 2, token="other", told=False)
    story.change("j", "ready", 1)  # given back
    story.claim("j", 2, token="third")
    story.act("fail", "j", "due", 2, token="third", due_ms=story.now_ms + 5_000)
    story.at_s += 5
    story.change("j", "ready", 2)
    story.claim("j", 3)
    story.act("fail", "j", "failed", 3, due_ms=0)
    story.send("k", message="c0-2")
    story.claim("k")
    story.act("give up", "k", "failed", due_ms=0)
    assert judged(story) == {
        "lease renewed": 1,
        "lease ran out": 1,
        "job released": 1,
        "claim given back": 1,
        "job retried": 2,
        "job failed": 1,
        "job given up": 1,
    }


def test_a_head_that_is_retried_is_counted_if_others_wait(story):
    story.send("j", line="q/k")
    story.send("k", line="q/k", stage="blocked", message="c0-2")
    story.claim("j")
    story.act("fail", "j", "ready", due_ms=0)
    assert judged(story)["head retried while others waited"] == 1


def test_a_head_that_is_retried_alone_is_not_counted_as_in_the_way(story):
    story.send("j", line="q/k")
    story.claim("j")
    story.act("fail", "j", "ready", due_ms=0)
    assert judged(story) == {"job retried": 1}


def test_who_gives_up_at_the_last_attempt_has_used_them_up(story):
    story.send("j", attempts_max=1)
    story.claim("j")
    story.act("give up", "j", "failed", due_ms=0)
    assert judged(story) == {"job failed": 1}


def test_a_job_that_nobody_sent_is_found(story):
    story.change("j", "ready")
    wrong(story, "unsent")


def test_a_message_that_sends_twice_is_found(story):
    story.send("j")
    story.send("k")
    wrong(story, "applied twice")


@pytest.mark.parametrize("what", ["complete", "fail", "release", "give up"])
def test_an_act_with_an_old_token_is_stale(story, what):
    story.send("j")
    story.claim("j")
    story.at_s += 20
    story.change("j", "ready", 1)
    story.claim("j", 2)
    story.act(what, "j", "ready", 2, token="j:1", due_ms=0)
    wrong(story, "stale")


def test_an_act_on_a_job_that_nobody_holds_is_stale(story):
    story.send("j")
    story.act("complete", "j", "succeeded")
    wrong(story, "stale")


def test_an_extension_after_the_end_is_stale(story):
    story.send("j")
    story.claim("j")
    story.complete("j")
    story.act("extend", "j", until_ms=story.now_ms + 9_000)
    wrong(story, "stale")


def test_an_extension_that_makes_a_lease_shorter_is_found(story):
    story.send("j")
    story.claim("j")
    story.act("extend", "j", until_ms=story.now_ms + 1_000)
    wrong(story, "early", "shorter")


def test_an_extension_to_the_same_time_is_right(story):
    story.send("j")
    story.claim("j", lease_s=10)
    story.act("extend", "j", until_ms=story.now_ms + 10_000)
    assert judged(story) == {"lease renewed": 1}


def test_an_extension_that_changes_the_job_is_torn(story):
    story.send("j")
    story.claim("j")
    story.act("extend", "j", "running", until_ms=story.now_ms + 9_000)
    wrong(story, "torn")


def test_an_act_that_leaves_its_job_as_it_was_is_torn(story):
    story.send("j")
    story.claim("j")
    story.act("complete", "j")
    wrong(story, "torn")


@pytest.mark.parametrize(
    ("what", "stage"), [("complete", "ready"), ("release", "failed"), ("fail", "blocked")]
)
def test_an_act_with_another_end_is_torn(story, what, stage):
    story.send("j")
    story.claim("j")
    story.act(what, "j", stage, due_ms=0)
    wrong(story, "torn")


def test_a_job_that_moves_by_itself_is_torn(story):
    story.send("j")
    story.change("j", "succeeded")
    wrong(story, "torn", "without an action")


def test_a_job_that_moves_by_itself_is_torn_whatever_else_its_commit_does(story):
    story.send("j")
    story.commit(job("j", "succeeded"), delete=(("ready#0000#q", "x"),))
    wrong(story, "torn", "without an action")


@pytest.mark.parametrize("stage", ["due", "ready", "succeeded", "failed"])
def test_a_token_that_stays_is_torn(story, stage):
    story.send("j")
    story.change("j", stage, token="left")
    wrong(story, "torn", "has a token")


def test_a_job_that_is_claimed_while_it_is_held_is_claimed_twice(story):
    story.send("j")
    story.claim("j")
    story.claim("j", 2)
    wrong(story, "claimed twice")


def test_a_token_that_is_used_again_is_found(story):
    story.send("j", "k")
    story.claim("j", token="same")
    story.claim("k", token="same")
    wrong(story, "claimed twice")


@pytest.mark.parametrize("early_ms", [201, 202])
@pytest.mark.parametrize("at_s", [0, 1_000])
def test_a_job_may_be_ready_before_its_time_by_the_clock_error_only(story, at_s, early_ms):
    story.at_s = at_s
    story.send("j", due_ms=story.now_ms + 2_000 + early_ms, stage="due")
    story.change("j", "ready")
    if early_ms == 201:  # a millisecond has begun on one clock, and not on the other
        judged(story)
    else:
        wrong(story, "early", "1 ms before its time")


def test_a_job_that_is_claimed_before_its_time_is_found(story):
    story.send("j", stage="due", due_ms=story.now_ms + 4_000)
    story.send("k", message="c0-2")
    story.claim("k")
    story.act("fail", "k", "ready", due_ms=story.now_ms + 5_000)
    story.claim("k", 2)
    wrong(story, "early")


def test_a_job_that_overtakes_another_of_its_key_is_found(story):
    story.send("j", line="q/k", stage="due", due_ms=story.now_ms + 50_000)
    story.send("k", line="q/k", message="c0-2")
    story.claim("k")
    wrong(story, "out of order")


def test_the_next_may_be_claimed_when_the_head_has_failed(story):
    story.send("j", line="q/k", attempts_max=1)
    story.send("k", line="q/k", stage="blocked", message="c0-2")
    story.claim("j")
    story.act("fail", "j", "failed", due_ms=0)
    story.change("k", "ready")
    story.claim("k")
    assert judged(story) == {"job failed": 1}


def test_the_next_may_be_claimed_when_the_head_is_done(story):
    story.send("j", line="q/k")
    story.send("k", line="q/k", stage="blocked", message="c0-2")
    story.claim("j")
    story.complete("j")
    story.change("k", "ready")
    story.claim("k")
    assert judged(story) == {}


def test_attempts_with_a_gap_are_miscounted(story):
    story.send("j")
    story.claim("j", 2)
    wrong(story, "miscounted")


def test_an_attempt_too_many_is_miscounted(story):
    story.send("j", attempts_max=1)
    story.claim("j")
    story.act("release", "j", "ready")
    story.claim("j", token="x")
    story.act("fail", "j", "ready", token="x", due_ms=0)
    wrong(story, "miscounted", "should have failed")


def test_a_job_that_dies_with_attempts_left_is_found(story):
    story.send("j", attempts_max=2)
    story.claim("j")
    story.act("fail", "j", "failed", due_ms=0)
    wrong(story, "failed")


@pytest.mark.parametrize("early_s", [0.201, 0.202])
def test_a_lease_may_be_ended_early_by_the_clock_error_only(story, early_s):
    story.send("j")
    story.claim("j", lease_s=5)
    story.at_s += 4 - early_s
    story.change("j", "ready", 1)
    if early_s == 0.201:
        assert judged(story) == {"lease ran out": 1, "job retried": 1}
    else:
        wrong(story, "early", "1 ms before its lease ran out")


def test_a_lease_that_was_renewed_counts_from_then_on(story):
    story.send("j")
    story.claim("j", lease_s=5)
    story.act("extend", "j", until_ms=story.now_ms + 20_000)
    story.at_s += 10
    story.change("j", "ready", 1)
    wrong(story, "early", "before its lease ran out")


def test_a_claim_that_its_worker_has_cannot_be_given_back(story):
    story.send("j")
    story.claim("j")
    story.change("j", "ready")
    wrong(story, "taken away")


def test_a_claim_that_nobody_received_is_given_back_and_does_not_count(story):
    story.send("j", attempts_max=1)
    story.claim("j", told=False)
    story.change("j", "ready")
    story.claim("j", token="other")
    assert judged(story) == {"claim given back": 1}


@pytest.mark.parametrize("stage", ["blocked", "succeeded", "failed"])
def test_a_claim_that_nobody_received_can_be_given_back_in_no_other_way(story, stage):
    story.send("j")
    story.claim("j", told=False)
    story.change("j", stage)
    wrong(story, "torn", "should wait for another attempt")


def test_what_is_no_job_is_passed_over(story):
    story.commit(("job#0000", "j#lease", {"token": "x"}), ("config", "schedule", {"slots": 1}))
    story.commit(delete=(("job#0000", "j#lease"),))
    assert judged(story) == {}
    assert job("j", "ready")[1] == "j#job"
