"""Plays a copy of a room by a script, as the vectors have it: what is done, and what is heard."""

import json
from typing import Any

import msgspec

from onceward.api.room_changes import RoomOperation
from onceward.client.rooms.replica import Replica
from onceward.client.rooms.steps import Step
from onceward.errors import OncewardError
from onceward.rooms.frames import encode, read_server


class Player:
    """One copy, and what became of its steps."""

    def __init__(self, client: str) -> None:
        self.replica = Replica("r", client)
        self.replica.user = "me"
        self.answers: list[list[Any]] = []

    def play(self, act: dict[str, Any]) -> dict[str, Any]:
        """Do one thing; what is sent, seen and answered then."""
        replica, sends, refused = self.replica, [], None
        if "join" in act:
            sends.append(replica.join())
        elif "lost" in act:
            replica.lost()
        elif "change" in act:
            try:
                ops = msgspec.convert(act["change"], list[RoomOperation])
                replica.change(ops).on_answer(self._answered)
            except OncewardError as error:
                refused = error.code
        else:
            for frame in act["hear"]:
                replica.receive(read_server(json.dumps(frame)))  # type: ignore[arg-type]
            replica.settle()
        sends += replica.out
        replica.out.clear()
        answers, self.answers = self.answers, []
        found: dict[str, Any] = {
            "sends": [json.loads(encode(frame)) for frame in sends],
            "answers": answers,
            "position": [replica.epoch, replica.seq, replica.digest],
            "live": replica.live,
            **json.loads(msgspec.json.encode(replica.state.plain())),
        }
        return found if refused is None else {**found, "refused": refused}

    def _answered(self, step: Step) -> None:
        """Its number, and its sequence number or the code of its error."""
        self.answers.append([step.n, step.error.code if step.error else step.seq])
