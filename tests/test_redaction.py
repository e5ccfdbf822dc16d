"""Credentials are cut out of URLs and of messages that quote them."""

import logging

import pytest

from onceward import engine
from onceward.errors import BadInput
from onceward.redaction import redact, redact_url
from onceward.web.logs import JsonFormatter, TextFormatter

URLS = [
    "postgresql://ann:hush@db/app",
    "postgres://ann:hush@db/app",
    "POSTGRESQL://ann:hush@db/app",
    "postgresql://ann:hu@hush@db/app",
    "postgresql://ann:x/hush@db/app",
    "postgresql://ann:x?hush@db/app",
    "postgresql://ann:x#hush@db/app",
    "postgresql://ann:x hush@db/app",
    "postgresql://ann:5432hush@db/app",
    "postgresql:/ann:hush@db/app",
    "postgresql://db/app?user=ann&password=hush",
    "postgresql://db/app?sslpassword=hush&schema=s",
    "mysql://ann:hush@db/app",
    "host=db user=ann password=hush",
    "host=db password='x hush'",
]


@pytest.mark.parametrize("url", URLS)
def test_a_password_is_cut_out_wherever_it_stands(url: str) -> None:
    assert "hush" not in redact_url(url)
    assert "hush" not in redact(f"cannot open {url}: no such file")
    assert "hush" not in redact(f"cannot open {url!r}, or ./{url.replace('//', '/')}")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("memory://", "memory://"),
        ("postgresql://db:5432/x?schema=s", "postgresql://db:5432/x?schema=s"),
        ("ann:hush@db/x", "…@db/x"),
    ],
)
def test_the_rest_of_a_url_stays(url: str, shown: str) -> None:
    assert redact_url(url) == shown


def test_messages_without_credentials_stay_as_they_are() -> None:
    text = "call https://example.com/@ann?x=1, mail to ann@example.com"
    assert redact(text) == text


@pytest.mark.parametrize("url", [*URLS, "postgresql://ann:hush℀@db/app", "postgresql://a:hush@["])
def test_no_error_about_a_database_url_quotes_its_password(url: str) -> None:
    try:
        said = engine.create(url).target.label  # type: ignore[attr-defined]
    except BadInput as refused:
        said = str(refused)
    assert "hush" not in said


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter("%(message)s")])
def test_no_log_line_has_a_password(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(URLS[0])
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "", 1, "at %s", (URLS[0],), info)
    line = formatter.format(record)
    assert "@db/app" in line
    assert "hush" not in line
