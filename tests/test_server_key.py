"""Server keys encrypt, sign, and show nothing of themselves."""

import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.errors import OncewardError, SecretUnreadable
from onceward.server_key import KEY_BYTES, ServerKeys, new_key, parse_keys

OLD, NEW = b"o" * KEY_BYTES, b"n" * KEY_BYTES
PLACE = ("endpoint", "ann", "shop", "secret")


@given(st.text(), st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_what_was_encrypted_can_be_decrypted(text: str, place: list[str]) -> None:
    keys = ServerKeys([NEW])
    sealed = keys.encrypt(text, *place)
    assert keys.decrypt(sealed, *place) == text
    assert sealed.isascii()


def test_a_ciphertext_says_nothing_of_its_text_and_is_never_the_same() -> None:
    keys = ServerKeys([NEW])
    sealed = {keys.encrypt("hush", *PLACE) for _ in range(100)}
    assert len(sealed) == 100
    assert not any("hush" in one for one in sealed)


@pytest.mark.parametrize(
    "place",
    [
        ("endpoint", "ann", "other", "secret"),
        ("endpoint", "bob", "shop", "secret"),
        ("endpoint", "ann", "shop", "header"),
        ("endpoint", "ann#shop", "secret"),
        ("timer", "ann", "shop", "secret"),
    ],
)
def test_a_ciphertext_that_was_moved_cannot_be_decrypted(place: tuple[str, ...]) -> None:
    keys = ServerKeys([NEW])
    with pytest.raises(SecretUnreadable, match="changed or moved"):
        keys.decrypt(keys.encrypt("hush", *PLACE), *place)


def test_a_ciphertext_that_was_changed_cannot_be_decrypted() -> None:
    keys = ServerKeys([NEW])
    sealed = keys.encrypt("hush", *PLACE)
    form, id_, text = sealed.split(".")
    for odd in (
        *(f"{form}.{id_}.{_flipped(text, at)}" for at in (0, 20, 40)),
        f"{form}.{id_}.",
        f"{form}.{id_}.****",
        f"enc9.{id_}.{text}",
        f"{form}..{text}",
        "hush",
        "",
    ):
        with pytest.raises(SecretUnreadable):
            keys.decrypt(odd, *PLACE)


def _flipped(text: str, at: int) -> str:
    return f"{text[:at]}{'B' if text[at] == 'A' else 'A'}{text[at + 1 :]}"


def test_the_first_key_encrypts_and_all_of_them_decrypt() -> None:
    before, both, after = ServerKeys([OLD]), ServerKeys([NEW, OLD]), ServerKeys([NEW])
    sealed = before.encrypt("hush", *PLACE)
    assert both.decrypt(sealed, *PLACE) == "hush"
    assert before.is_current(sealed)
    assert not both.is_current(sealed)
    with pytest.raises(SecretUnreadable, match="ONCEWARD_SERVER_KEY_FILE") as refused:
        after.decrypt(sealed, *PLACE)
    assert refused.value.details["key"] in before.checks
    assert after.decrypt(both.encrypt("hush", *PLACE), *PLACE) == "hush"
    signed = before.sign("session", "text")
    assert both.verify("session", "text", signed)
    assert not after.verify("session", "text", signed)
    assert after.verify("session", "text", both.sign("session", "text"))


def test_a_signature_is_for_one_purpose_and_text() -> None:
    keys = ServerKeys([NEW])
    signed = keys.sign("session", "text")
    for purpose, text, given_ in (
        ("lock", "text", signed),
        ("session", "other", signed),
        ("session", "text", signed[:-1]),
        ("session", "text", ""),
        ("session", "text", "ü\ud800"),
    ):
        assert not keys.verify(purpose, text, given_)


def test_check_values_and_ids_say_nothing_of_a_key() -> None:
    [(id_, check)] = ServerKeys([NEW]).checks.items()
    assert NEW.hex() not in id_ + check
    assert len(id_) == 8
    assert ServerKeys([NEW]).checks != ServerKeys([OLD]).checks


def test_without_a_key_nothing_is_signed_or_encrypted() -> None:
    keys = ServerKeys()
    for use in (
        lambda: keys.sign("session", "text"),
        lambda: keys.verify("session", "text", ""),
        lambda: keys.encrypt("hush", *PLACE),
        lambda: keys.is_current("x"),
    ):
        with pytest.raises(OncewardError, match="ONCEWARD_SERVER_KEY_FILE") as refused:
            use()
        assert refused.value.code == "no_server_key"


def test_without_cryptography_only_encryption_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cryptography.hazmat.primitives.ciphers.aead", "cryptography.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    keys = ServerKeys([NEW])
    assert keys.verify("session", "text", keys.sign("session", "text"))
    with pytest.raises(OncewardError, match=r"onceward\[webhooks\]") as refused:
        keys.encrypt("hush", *PLACE)
    assert refused.value.code == "bad_settings"


def test_the_same_seed_gives_the_same_ciphertext() -> None:
    one, two = (ServerKeys([NEW], Random(7).randbytes).encrypt("x", "a") for _ in range(2))
    assert one == two


def test_keys_are_read_as_hex_or_base64_one_on_a_line() -> None:
    key = new_key()
    hexed, base64 = parse_keys([f"# made in May\n{key}\n\n", "b" * 43 + "="])
    assert hexed.hex() == key
    assert len(base64) == KEY_BYTES
    assert parse_keys([f"{key},{key}", f"{key} # old"]) == [hexed] * 3
    assert parse_keys(["", "# nothing"]) == []


@pytest.mark.parametrize("text", ["hush", "hush" * 16, "0" * 63, "AAAA", "ü" * 64])
def test_what_is_no_key_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(OncewardError, match="onceward server-key new") as refused:
        parse_keys([text])
    assert refused.value.code == "bad_settings"
    assert text not in str(refused.value)
