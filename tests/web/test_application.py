"""An application is found by the name of its module and its own."""

import pytest

from onceward.app import App
from onceward.errors import OncewardError
from onceward.web.application import load_app


def test_what_is_no_application_is_refused() -> None:
    for path in ("onceward.app:App", "json:loads", "json:nothing", "nowhere:app", ""):
        with pytest.raises(OncewardError) as refused:
            load_app(path)
        assert refused.value.code == "bad_settings", path


def test_an_application_is_called_app_if_nobody_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App("memory://")
    monkeypatch.setattr("json.app", app, raising=False)
    monkeypatch.setattr("json.shop", app, raising=False)
    assert load_app("json") is app
    assert load_app("json:shop") is app
