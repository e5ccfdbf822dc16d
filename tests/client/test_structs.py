"""What a newer server says beyond what is known here is no obstacle."""

import msgspec
import pytest

from onceward.api.jobs import ENDED as ENDED_AT_CLIENTS
from onceward.api.jobs import Job
from onceward.api.messages import MessageVerdict, Receipt
from onceward.work.results import ENDED


def test_what_is_new_is_ignored() -> None:
    raw = b'{"id": "1", "key": "k", "state": "queued", "duplicate": false, "novelty": [1]}'
    assert msgspec.json.decode(raw, type=Receipt) == Receipt("1", "k", "queued", False)


def test_what_is_missing_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"id": "1"}', type=Receipt)


@pytest.mark.parametrize("state", [*ENDED, "scheduled", "queued", "running", "retrying"])
def test_a_job_says_whether_it_has_ended_as_the_server_does(state: str) -> None:
    assert set(ENDED) == set(ENDED_AT_CLIENTS)
    job = Job("1", "q", state, None, 0, 0, 1, priority=5, attempts_max=5)
    assert job.ended is (state in ENDED)


def test_histories_are_not_shared() -> None:
    first, second = (
        Job("1", "q", "queued", None, 0, 0, 1, priority=5, attempts_max=5) for _ in range(2)
    )
    assert first.history is not second.history


def test_a_verdict_is_one_or_the_other() -> None:
    raw = b'{"rejected": {"code": "bad_key", "detail": "why", "status": 422}}'
    verdict = msgspec.json.decode(raw, type=MessageVerdict)
    assert verdict.accepted is None
    assert verdict.rejected is not None
