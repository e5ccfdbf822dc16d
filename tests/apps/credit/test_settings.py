"""Settings come from the environment, and what would be unsafe is refused."""

import pytest

from apps.credit.credit import Credit
from apps.credit.decision import decide
from apps.credit.settings import Settings, load, load_decide
from onceward import limits
from onceward.errors import OncewardError

ENOUGH = {
    "CREDIT_ORGANISATIONS": "00D000000000001, 00D000000000002EAA",
    "CREDIT_SECRET": "a-secret".replace("-", "") + "0" * 16,
    "CREDIT_BUREAU": "https://bureau.example/pulls",
    "CREDIT_SALESFORCE": "https://org.example/results",
    "OTHER": "thing",
}


def test_settings_are_read() -> None:
    settings = load({**ENOUGH, "CREDIT_BUREAU_KEYS": "1", "CREDIT_LEASE_S": "2.5"})
    assert settings.organisations == ("00D000000000001EAA", "00D000000000002EAA")
    assert (settings.bureau_keys, settings.lease_s, settings.work) == (True, 2.5, True)


def test_certificates_are_taken_as_they_are_written_elsewhere() -> None:
    told = {**ENOUGH, "CREDIT_CERTIFICATES": ":".join(["AB"] * 32)}
    del told["CREDIT_SECRET"]
    assert load(told).certificates == ("ab" * 32,)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"CREDIT_SECRET": ""}, "anyone could send"),
        ({"CREDIT_SECRET": "short"}, "at least 16"),
        ({"CREDIT_SECRET": "with/slashes/in/it/and/long"}, "letters and digits"),
        ({"CREDIT_ORGANISATIONS": ""}, "to the organisations"),
        ({"CREDIT_ORGANISATIONS": "me"}, "not the id"),
        ({"CREDIT_CERTIFICATES": "ab"}, "64 hex digits"),
        ({"CREDIT_CERTIFICATES": "x" * 64}, "64 hex digits"),
        ({"CREDIT_LEASE_S": "soon"}, "expected `float`"),
        ({"CREDIT_LEASE_S": "0"}, "expected `float` > 0"),
        ({"CREDIT_BUREAU_TIMEOUT_S": "1e30"}, "expected `float` <= "),
        ({"CREDIT_BUREAU_KEYS": "maybe"}, "expected `bool`"),
        ({"CREDIT_CONCURRENCY": "0"}, "expected `int` >= 1"),
        ({"CREDIT_BUREAU": "bureau.example/pulls"}, "a URL, as in https://"),
        ({"CREDIT_BUREAU": "ftp://bureau.example"}, "a URL, as in https://"),
        ({"CREDIT_SALESFORCE": "https://"}, "a URL, as in https://"),
        ({"CREDIT_SALESFORCE": "http://[::1"}, "a URL, as in https://"),
        ({"CREDIT_SALESFORCE": "http://org.example:99999"}, "a URL, as in https://"),
        ({"CREDIT_BUREAU_AUTHORIZATION": "Bearer a\r\nb"}, "printable ASCII"),
        ({"CREDIT_COLOUR": "red"}, "unknown setting"),
    ],
)
def test_what_cannot_be_is_refused_and_named(change: dict[str, str], why: str) -> None:
    with pytest.raises(OncewardError, match=why) as refused:
        load({**ENOUGH, **change})
    assert refused.value.code == "bad_settings"
    [variable] = change
    assert variable in refused.value.message


def test_all_that_is_missing_is_named_at_once() -> None:
    needed = ("CREDIT_ORGANISATIONS", "CREDIT_BUREAU", "CREDIT_SALESFORCE")
    for name in needed:
        with pytest.raises(OncewardError, match=rf": set {name} \["):
            load({key: text for key, text in ENOUGH.items() if key != name})
    with pytest.raises(OncewardError, match=rf": set {', '.join(needed)} \["):
        load({})


def test_defaults_are_those_of_a_careful_installation() -> None:
    settings = Settings(organisations=(), bureau="", salesforce="")
    assert settings.bureau_keys is False


def test_a_process_that_stops_waits_for_pulls_that_nobody_could_repeat() -> None:
    told = {**ENOUGH, "CREDIT_DATABASE": "memory://", "CREDIT_BUREAU_TIMEOUT_S": "700"}
    for keys, drain_s in (("0", 700), ("1", limits.DRAIN_S)):
        settings = load({**told, "CREDIT_BUREAU_KEYS": keys})
        app = Credit(settings, decide=decide).app
        assert (settings.drain_s, app._workers.drain_s) == (drain_s, drain_s)
    assert load({**told, "CREDIT_BUREAU_TIMEOUT_S": "1"}).drain_s == limits.DRAIN_S


def test_the_function_that_decides_is_named_by_a_setting() -> None:
    settings = load({**ENOUGH, "CREDIT_DECIDE": "apps.credit.decision:decide"})
    assert load_decide(settings.decide) is decide


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "set CREDIT_DECIDE to your function"),
        ("no.such.module:decide", "No module named"),
        ("apps.credit.decision:no_such", "no attribute 'no_such'"),
        ("apps.credit.decision", "cannot load"),
        ("apps.credit.decision:SCORE_GOOD", "is not a function"),
    ],
)
def test_a_process_that_works_needs_a_function_that_decides(path: str, why: str) -> None:
    told = {**ENOUGH, "CREDIT_DATABASE": "memory://", "CREDIT_DECIDE": path}
    with pytest.raises(OncewardError, match=why) as caught:
        Credit(load(told))
    assert caught.value.code == "bad_settings"
    Credit(load({**told, "CREDIT_WORK": "0"}))  # which only takes messages in
