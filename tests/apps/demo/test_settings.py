"""What the stage tells its processes is what they are told."""

import pytest

from apps.demo.settings import Settings, load
from onceward.errors import OncewardError

TOLD = Settings(
    parent=7,
    port=8081,
    database="sqlite:///demo.db",
    outside="http://127.0.0.1:1/a",
    control="http://127.0.0.1:1/b",
    secret="s" * 32,
)


def test_settings_go_through_an_environment() -> None:
    assert load({**TOLD.environment(), "PATH": "/bin"}) == TOLD
    assert TOLD.server == "http://127.0.0.1:8081"


@pytest.mark.parametrize(
    "environment", [{}, {**TOLD.environment(), "DEMO_PORT": "http"}, {"DEMO_NONE": "1"}]
)
def test_who_starts_a_process_by_hand_is_told_what_does(environment: dict[str, str]) -> None:
    with pytest.raises(OncewardError, match="only `make demo` can start this") as refused:
        load(environment)
    assert refused.value.code == "bad_settings"
