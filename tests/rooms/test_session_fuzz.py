"""Whatever a connection sends, it is answered or closed with a code; the server has no bug."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceward.engine.memory import MemoryEngine
from onceward.errors import TABLE
from onceward.store import Store
from onceward.testing import VirtualClock, run_virtual
from tests.rooms.people import House, open_house

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)
ROOMS = st.sampled_from(["a", "b", "", "none"])
NAMES = st.sampled_from(["m", "", "x" * 200])
KEYS = st.sampled_from(["k", "l", ""])
OPS = st.one_of(
    st.fixed_dictionaries({"op": st.just("map.set"), "map": NAMES, "key": KEYS, "value": VALUES}),
    st.fixed_dictionaries({"op": st.just("map.add"), "map": NAMES, "key": KEYS, "by": VALUES}),
    st.fixed_dictionaries(
        {"op": st.just("list.insert"), "list": NAMES, "id": KEYS, "value": VALUES},
        optional={"after": KEYS, "at": KEYS},
    ),
    st.fixed_dictionaries({"op": st.just("list.move"), "list": NAMES, "id": KEYS, "after": KEYS}),
    st.fixed_dictionaries({"op": st.sampled_from(["map.drop", "map.make"]), "map": NAMES}),
    st.fixed_dictionaries({"op": VALUES}),
)
NUMBERS = st.integers(-1, 5) | st.just(2**60)
STEPS = st.fixed_dictionaries({"n": NUMBERS, "ops": st.lists(OPS, max_size=2)})
FRAMES = st.one_of(
    st.fixed_dictionaries(
        {"t": st.just("join"), "room": ROOMS, "client": NAMES},
        optional={
            "create": st.booleans(),
            "epoch": st.text(max_size=2),
            "seq": NUMBERS,
            "steps": st.lists(STEPS, max_size=2),
        },
    ),
    st.fixed_dictionaries(
        {"t": st.just("ops"), "room": ROOMS, "n": NUMBERS, "ops": st.lists(OPS, max_size=3)}
    ),
    st.fixed_dictionaries(
        {"t": st.just("presence.set"), "room": ROOMS, "name": NAMES, "value": VALUES},
        optional={"ttl_ms": NUMBERS},
    ),
    st.fixed_dictionaries({"t": st.just("presence.remove"), "room": ROOMS, "name": NAMES}),
    st.fixed_dictionaries({"t": st.just("say"), "room": ROOMS, "event": NAMES, "value": VALUES}),
    st.fixed_dictionaries({"t": st.just("tell"), "room": ROOMS, "to": NAMES, "event": NAMES}),
    st.fixed_dictionaries({"t": st.sampled_from(["leave", "ping"]), "room": ROOMS}),
    st.fixed_dictionaries({"t": st.sampled_from(["hello", "token"]), "token": st.text(max_size=2)}),
    st.fixed_dictionaries({"t": VALUES, "room": VALUES}),
)
JOIN: Any = {"t": "join", "room": "a", "client": "m", "create": True}


@given(st.lists(FRAMES, max_size=12))
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_whatever_is_sent_is_answered_or_closed_with_a_code(sent: list[Any]) -> None:
    async def main(house: House) -> None:
        witness, sender = await house.enter("witness"), await house.enter("sender")
        await witness.join("a", "w", create=True)
        for frame in (JOIN, *sent):
            sender.session.receive(json.dumps(frame).encode())
            await house.store.clock.sleep(0.001)
        await house.store.clock.sleep(1)
        if sender.code is not None:
            assert TABLE[sender.reason].close == sender.code
            assert sender.reason != "internal"
        else:
            asked = sum(frame["t"] == "ops" for frame in sent)
            answers = [told for told in sender.got if told["t"] in ("ack", "refused")]
            assert len(answers) >= asked
        # Whatever that was, the other one sees all of it in order, and goes on.
        seqs = [told["seq"] for told in witness.got if told["t"] in ("change", "ack")]
        assert seqs == list(range(1, len(seqs) + 1))
        witness.ask("ping")
        await witness.next("pong")

    async def run() -> None:
        engine = MemoryEngine()
        await engine.open()
        async with open_house(Store(engine, VirtualClock())) as house:
            await main(house)

    run_virtual(run())
