"""A room as a program has it: subscribers, batches, refusals, and lost connections."""

import logging
from typing import Any

import pytest

from onceward import limits
from onceward.api import room_changes as op
from onceward.api.rooms import Schemas
from onceward.client.rooms.replica import Who
from onceward.errors import BadInput, OncewardError
from onceward.rooms.frames import (
    Ack,
    Change,
    Joined,
    Left,
    Refused,
    Snapshot,
    encode,
    read_client,
)
from tests.client.rooms.guests import Guest, guests, joined, live, pump
from tests.client.rooms.world import Server


def test_a_change_shows_at_once_and_others_are_told_the_value_and_who() -> None:
    ann, bob = guests("ann", "bob")
    told: list[Any] = []
    bob.room.map("m").subscribe(lambda value, who: told.append((value, who)))
    bob.room.map("m").subscribe(lambda value, who: told.append((value, who.user)), key="k")
    end = bob.room.map("m").subscribe(lambda value, who: told.append("no"), key="other")
    ann.room.map("m").set("k", {"a": 1})
    assert ann.room.map("m")["k"] == {"a": 1}
    assert "k" not in bob.room.map("m")
    pump(ann, bob)
    assert told == [({"k": {"a": 1}}, Who("ann")), ({"a": 1}, "ann")]
    assert ann.room.waiting == 0
    end()
    end()
    bob.room.map("m").delete("k")
    assert told[2:] == [({}, Who("bob", True)), (None, "bob")]


def test_subscribers_of_lists_get_all_values_in_order() -> None:
    ann, bob = guests("ann", "bob")
    told: list[Any] = []
    bob.room.list("l").subscribe(lambda values, who: told.append((values, who.user)))
    for value in "ab":
        ann.room.list("l").push(value)
    first = ann.room.list("l").insert(0, "c")
    pump(ann, bob)
    assert told == [(["c", "a", "b"], "ann")], "what comes together is told together"
    assert bob.room.list("l").id_at(0) == first.id
    assert [item.value for item in bob.room.list("l").items()] == ["c", "a", "b"]
    assert (len(bob.room.list("l")), bob.room.list("l")[-1]) == (3, "b")


def test_changes_at_the_same_time_end_the_same_for_both() -> None:
    ann, bob = guests("ann", "bob")
    ann.room.list("l").push("x")
    pump(ann, bob)
    x = ann.room.list("l").id_at(0)
    for guest in (ann, bob):
        for number in (1, 2):
            guest.room.list("l").insert(number, f"{guest.name} {number}")
        guest.room.map("m").set("k", guest.name)
    pump(ann, bob)
    assert ann.room.list("l").items() == bob.room.list("l").items()
    assert ann.room.list("l").values() == ["x", "bob 1", "bob 2", "ann 1", "ann 2"]
    assert ann.room.map("m").whole() == bob.room.map("m").whole() == {"k": "bob"}
    ann.room.list("l").move(x, 4)
    bob.room.list("l").set(x, "y")
    bob.room.list("l").delete(bob.room.list("l").id_at(1))
    pump(ann, bob)
    assert ann.room.list("l").values() == bob.room.list("l").values()
    assert ann.room.list("l").values() == ["bob 2", "ann 1", "ann 2", "y"]


def test_a_batch_is_one_step_and_one_that_raises_is_none() -> None:
    ann, bob = guests("ann", "bob")
    told: list[Any] = []
    bob.room.map("m").subscribe(lambda value, who: told.append(value))
    with ann.room.batch() as saved:
        ann.room.map("m").set("a", 1)
        ann.room.map("m").add("a", 1)
        assert ann.room.map("m").get("a") == 2
        assert ann.room.waiting == 0
    pump(ann, bob)
    assert saved.done
    assert told == [{"a": 2}]
    assert ann.room.position[1] == 1

    def fails() -> None:
        with ann.room.batch():
            ann.room.map("m").set("a", 5)
            raise ZeroDivisionError

    def nests() -> None:
        with ann.room.batch(), ann.room.batch():
            ann.room.map("m").set("a", 5)

    with pytest.raises(ZeroDivisionError):
        fails()
    with pytest.raises(BadInput, match="is already open"):
        nests()
    with ann.room.batch():
        pass
    assert ann.room.map("m").whole() == {"a": 2}
    assert ann.room.waiting == 0


def test_what_comes_during_a_batch_goes_below_it() -> None:
    ann, bob = guests("ann", "bob")
    with ann.room.batch():
        ann.room.map("m").set("k", "ann's")
        bob.room.map("m").set("k", "bob's")
        bob.room.map("m").set("j", "bob's")
        pump(bob, ann)
        assert ann.room.map("m").whole() == {"k": "ann's", "j": "bob's"}
    pump(ann, bob)
    assert bob.room.map("m").whole() == {"k": "ann's", "j": "bob's"}
    ann.room.map("m").set("n", 1)
    pump(ann, bob)

    def too_late() -> None:
        with ann.room.batch():
            ann.room.map("m").compare("n", 2, expect=1)
            bob.room.map("m").set("n", 7)
            pump(bob, ann)

    with pytest.raises(BadInput) as refused:
        too_late()
    assert refused.value.code == "not_expected"
    assert ann.room.map("m").get("n") == 7


def test_a_refused_step_is_taken_back_and_told() -> None:
    (ann,) = guests("ann", schemas=Schemas(maps={"m": {"type": "integer"}}))
    told: list[Any] = []
    ann.room.on_refused(lambda error, ops: told.append((error.code, ops)))
    ann.room.map("m").set("k", "text")
    ann.room.map("m").set("j", 1)
    assert ann.room.map("m").whole() == {"k": "text", "j": 1}
    pump(ann)
    assert ann.room.map("m").whole() == {"j": 1}
    assert told == [("bad_shape", [op.MapSet("m", "k", "text")])]


def test_a_comparison_that_fails_at_the_server_is_refused_there() -> None:
    ann, bob = guests("ann", "bob")
    ann.room.map("m").compare("k", "ann's")
    bob.room.map("m").compare("k", "bob's")
    told: list[str] = []
    bob.room.on_refused(lambda error, ops: told.append(error.code))
    pump(ann, bob)
    assert told == ["not_expected"]
    assert bob.room.map("m").get("k") == "ann's"
    with pytest.raises(BadInput) as refused:
        bob.room.map("m").compare("k", 1, expect=2)
    assert refused.value.code == "not_expected"


def test_changes_without_a_connection_wait_and_count_once() -> None:
    ann, bob = guests("ann", "bob")
    statuses: list[str] = []
    ann.room.on_status(statuses.append)
    ann.room.map("m").add("n", 1)
    pump(ann)
    ann.room.map("m").add("n", 1)
    for frame in ann.room.take_out():  # it arrives, and the answer is lost
        ann._up(frame)
    ann.server.commit()
    ann.cut()
    ann.room.map("m").add("n", 1)
    bob.room.map("m").add("n", 10)
    pump(bob)
    assert ann.room.map("m").get("n") == 3
    assert ann.room.waiting == 2
    ann.connect()
    pump(ann, bob)
    assert ann.room.waiting == 0
    assert ann.room.map("m").get("n") == bob.room.map("m").get("n") == 13
    assert statuses == ["away", "live"]


def test_nobody_is_told_again_of_one_s_own_change_when_its_answer_was_lost() -> None:
    ann, bob = guests("ann", "bob")
    ann.room.map("m").set("k", 1)
    for frame in ann.room.take_out():
        ann._up(frame)
    ann.server.commit()
    ann.cut()
    bob.room.map("m").set("j", 2)
    pump(bob)
    told: list[Any] = []
    ann.room.map("m").subscribe(lambda value, who: told.append((value, who.user)))
    ann.connect()
    pump(ann)
    assert told == [({"k": 1, "j": 2}, "bob")]
    assert ann.room.waiting == 0


def test_what_was_done_before_the_room_was_ever_joined_is_sent_then() -> None:
    server = Server(keep=1_000)
    ann = Guest(server, "ann")
    ann.room.list("l").push("early")
    assert ann.room.status == "joining"
    ann.connect()
    assert ann.sent[-1].steps == []
    pump(ann)
    assert ann.room.status == "live"
    assert server.room.state.plain()["lists"]["l"][0][2] == "early"


def test_a_subscriber_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    (ann,) = guests("ann")
    told: list[Any] = []
    ann.room.map("m").subscribe(lambda value, who: value["missing"])
    ann.room.map("m").subscribe(lambda value, who: told.append(value))
    with caplog.at_level(logging.ERROR, "onceward.client"):
        ann.room.map("m").set("k", 1)
    assert told == [{"k": 1}]
    assert "a subscriber of the room 'r' failed" in caplog.text


def test_what_is_got_is_a_copy() -> None:
    (ann,) = guests("ann")
    value = {"a": [1]}
    ann.room.map("m").set("k", value)
    value["a"].append(2)
    ann.room.map("m").get("k")["a"].append(3)
    ann.room.map("m").whole()["k"]["a"].append(4)
    ann.room.list("l").push([1])
    ann.room.list("l")[0].append(2)
    ann.room.list("l").values()[0].append(3)
    assert ann.room.map("m")["k"] == {"a": [1]}
    assert ann.room.list("l")[0] == [1]


# What servers do.


def test_a_room_that_is_deleted_is_closed_and_what_waits_fails() -> None:
    ann = live()
    codes: list[str] = []
    ann.room.on_refused(lambda error, ops: codes.append(error.code))
    ann.room.map("m").set("k", 1)
    ann.hear(Left("r", "room_deleted", "it was deleted"))
    assert (ann.room.status, ann.forgotten, codes) == ("closed", 1, ["room_deleted"])
    for call in (
        lambda: ann.room.map("m").set("k", 1),
        lambda: ann.room.presence("p").set(1),
        lambda: ann.room.say("wave"),
        lambda: ann.room.undo(),
    ):
        with pytest.raises(OncewardError) as refused:
            call()
        assert refused.value.code == "room_deleted"


def test_who_is_put_out_for_a_while_joins_again_with_what_waits() -> None:
    ann = live()
    ann.room.map("m").set("k", 1)
    ann.room.take_out()
    ann.hear(Left("r", "room_moved"), Refused("r", 1, "not_joined"))
    assert (ann.room.status, ann.rejoins, ann.room.waiting) == ("away", 1, 1)
    assert [step.n for step in ann.replica.join().steps] == [1]


def test_who_was_in_a_full_room_waits_for_a_place_and_who_was_not_is_told() -> None:
    ann = live()
    ann.hear(Left("r", "room_full"))
    assert (ann.room.status, ann.rejoins) == ("away", 1)
    new = Guest(Server(keep=1), "new")
    new.hear(Left("r", "room_full"))
    assert (new.room.status, new.rejoins) == ("closed", 0)
    assert new.room.error is not None
    assert new.room.error.code == "room_full"


def test_leaving_twice_is_once() -> None:
    ann = live()
    ann.room.leave()
    ann.room.leave()
    assert (ann.room.status, ann.room.error, ann.forgotten) == ("closed", None, 1)
    with pytest.raises(BadInput, match="was left"):
        ann.room.map("m").set("k", 1)


@pytest.mark.parametrize(
    "frame",
    [
        Change("r", 2, [op.MapSet("m", "k", 1)]),
        Change("r", 0, []),
        Ack("r", 9, 1),
        Snapshot("r", 0, {}, {}),
        Joined("r", "e", -1, 0, "", [], {}),
        Joined("r", "another", 0, 0, "", [], {}),
        Change("r", 1, [op.MapCompare("m", "k", 1, 2)]),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_a_copy_that_cannot_follow_is_made_anew(frame: Any) -> None:
    ann = live()
    ann.room.map("m").set("k", 1)
    codes: list[str] = []
    ann.room.on_refused(lambda error, ops: codes.append(error.code))
    ann.hear(frame)
    assert (ann.restarts, codes) == (1, ["outcome_unknown"])
    assert (ann.replica.join().epoch, ann.room.map("m").whole()) == ("", {})


def test_a_room_that_was_made_again_and_a_client_that_was_forgotten_begin_anew() -> None:
    for reset, code in (("epoch", "room_deleted"), ("forgotten", "outcome_unknown")):
        ann = live()
        codes: list[str] = []
        ann.room.on_refused(lambda error, ops, codes=codes: codes.append(error.code))
        ann.room.map("m").set("k", 1)
        ann.room.lost()
        ann.replica.join()
        again = Joined("r", "f", 3, 0, "m1", [], {}, reset)  # type: ignore[arg-type]
        ann.hear(
            again, Snapshot("r", 3, {"m": {"j": 2}}, {}, True), Snapshot("r", 3, {}, {"l": []})
        )
        assert codes == [code]
        assert ann.room.map("m").whole() == {"j": 2}
        assert ann.room.position == ("f", 3, "")
        ann.room.map("m").set("k", 2)
        (sent,) = ann.room.take_out()
        assert sent.n == 2, "numbers are not used twice"  # type: ignore[union-attr]


# What is not taken.


def nested(levels: int) -> Any:
    """A value of so many lists in each other."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_what_is_as_deep_as_may_be_can_be_read_by_a_server() -> None:
    ann = live()
    ann.room.map("m").set("k", nested(90))
    (sent,) = ann.room.take_out()
    assert read_client(encode(sent)) == sent
    ann.replica.lost()
    again = ann.replica.join()
    assert again.steps
    assert read_client(encode(again)) == again


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda room: room.map("m").set("k", object()), "bad_value"),
        (lambda room: room.map("m").set("k", float("nan")), "bad_value"),
        (lambda room: room.map("m").set("k", "x" * 300_000), "value_too_large"),
        (lambda room: room.map("m").set("k", nested(91)), "too_deep"),
        (lambda room: room.map("m").compare("k", 1, expect=nested(91)), "too_deep"),
        (lambda room: room.list("l").push({"a": nested(90)}), "too_deep"),
        (lambda room: room.presence("p").set(nested(91)), "too_deep"),
        (lambda room: room.say("e", nested(91)), "too_deep"),
        (lambda room: room.tell(7, "e"), "bad_name"),
        (lambda room: room.map("m").set(7, 1), "bad_name"),
        (lambda room: room.map("m").add("text"), "not_countable"),
        (lambda room: room.map(""), "bad_name"),
        (lambda room: room.list("l").insert(5, 1), "bad_request"),
        (lambda room: room.list("l").insert(-1, 1), "bad_request"),
        (lambda room: room.list("l").insert_after("nobody", 1), "bad_key"),
        (lambda room: room.list("l").set("nobody", 1), "bad_key"),
        (lambda room: room.list("l").move("nobody", 0), "bad_key"),
        (lambda room: room.list("l").move(room.list("l").id_at(0), 2), "bad_request"),
        (lambda room: room.presence("p").set("x" * 20_000), "value_too_large"),
        (lambda room: room.presence("p").set(1, ttl_s=0), "bad_request"),
        (lambda room: room.presence("p").set(1, ttl_s=-1), "bad_request"),
        (lambda room: room.say(""), "bad_name"),
        (lambda room: room.say("e", "x" * 70_000), "value_too_large"),
        (lambda room: room.undo() and room.undo() and room.undo(), "bad_request"),
        (lambda room: room.redo(), "bad_request"),
    ],
)
def test_bad_input_raises_at_once_and_changes_nothing(call: Any, code: str) -> None:
    ann = live()
    ann.room.map("m").set("text", "a")
    ann.room.list("l").push("a")
    with pytest.raises(OncewardError) as refused:
        call(ann.room)
    assert refused.value.code == code
    assert ann.room.waiting <= 4


def test_only_so_much_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    ann = live()
    monkeypatch.setattr(limits, "ROOM_WAITING_STEPS_MAX", 2)
    for number in range(2):
        ann.room.map("m").set("k", number)
    with pytest.raises(OncewardError) as refused:
        ann.room.map("m").set("k", 2)
    assert refused.value.code == "overloaded"
    with pytest.raises(OncewardError), ann.room.batch():
        ann.room.map("m").set("k", 3)
    assert ann.room.map("m").get("k") == 1


def test_what_was_under_way_when_one_left_and_came_again_is_passed_over() -> None:
    again = Guest(Server(keep=1), "ann")
    again.room.map("m").set("k", 1)
    codes: list[str] = []
    again.room.on_refused(lambda error, ops: codes.append(error.code))
    again.replica.join()
    again.hear(
        Change("r", 7, [op.MapSet("m", "k", 2)]),
        Ack("r", 1, 8),
        Refused("r", 1, "not_expected"),
        Snapshot("r", 8, {}, {}),
    )
    assert (again.restarts, codes, again.room.waiting) == (0, [], 1)
    again.hear(joined(), Snapshot("r", 0, {}, {}))
    (sent,) = again.room.take_out()
    assert (sent.n, again.room.map("m").whole()) == (1, {"k": 1})  # type: ignore[union-attr]
