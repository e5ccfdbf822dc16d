from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceward.errors import AddressRefused, BadInput
from onceward.webhooks.http.addresses import Guard
from tests.webhooks.http.test_addresses import LOOPBACK, METADATA, PRIVATE

GUARD = Guard()

numbers = st.integers(0, 2**32 - 1)


def judged(address: str) -> bool:
    try:
        GUARD.judge(address)
    except AddressRefused:
        return False
    return True


@given(number=numbers, spelling=st.lists(st.sampled_from("doxX"), min_size=4, max_size=4),
       parts=st.integers(1, 4), zeros=st.integers(0, 3))  # fmt: skip
def test_every_spelling_of_an_ipv4_address_is_judged_as_the_address(
    number: int, spelling: list[str], parts: int, zeros: int
) -> None:
    octets = list(number.to_bytes(4))
    values = [*octets[: parts - 1], int.from_bytes(bytes(octets[parts - 1 :]))]
    forms = {"d": "{:d}", "o": "0" * (zeros + 1) + "{:o}", "x": "0x" + "0" * zeros + "{:x}",
             "X": "0X{:X}"}  # fmt: skip
    host = ".".join(forms[how].format(v) for how, v in zip(spelling, values, strict=False))
    try:
        read = GUARD.parse(f"http://{host}/").address
    except AddressRefused:
        assert not judged(str(IPv4Address(number)))
    else:
        assert read == IPv4Address(number)
        assert judged(str(read))


@given(number=numbers)
def test_nothing_is_public_that_the_standard_library_holds_for_private(number: int) -> None:
    address = IPv4Address(number)
    if not address.is_global or address.is_multicast or address.is_reserved:
        assert not judged(str(address))


@given(
    number=st.one_of(st.integers(0, 2**128 - 1), st.integers(0x2000 << 112, (0x4000 << 112) - 1))
)
def test_no_ipv6_address_is_public_that_the_standard_library_holds_for_private(
    number: int,
) -> None:
    address = IPv6Address(number)
    if address.ipv4_mapped is None and (not address.is_global or address.is_multicast):
        assert not judged(str(address))


@given(number=numbers, network=st.integers(0, 2**16 - 1), interface=st.integers(0, 2**64 - 1))
def test_what_embeds_an_ipv4_address_is_no_more_public_than_it(
    number: int, network: int, interface: int
) -> None:
    public = judged(str(IPv4Address(number)))
    for value in (
        0xFFFF << 32 | number,
        0x64FF9B << 96 | number,
        0x2002 << 112 | number << 80 | network << 64 | interface,
        0x2606 << 112 | network << 64 | 0x5EFE << 32 | number,
        0x2606 << 112 | network << 64 | 0x02005EFE << 32 | number,
    ):
        assert judged(str(IPv6Address(value))) <= public, IPv6Address(value)
    assert judged(str(IPv6Address(0xFFFF << 32 | number))) == public
    assert judged(str(IPv6Address(0x64FF9B << 96 | number))) == public


@given(text=st.text(max_size=40), prefix=st.sampled_from(["", "http://", "https://[", "http://1"]))
def test_any_text_is_a_target_or_an_error_for_a_person(text: str, prefix: str) -> None:
    try:
        target = GUARD.parse(prefix + text)
    except BadInput:
        pass
    else:
        line = f"POST {target.path} HTTP/1.1\r\nHost: {target.authority}"
        assert line.isascii()
        assert line.count("\n") == 1
        assert line.count(" ") == 3
        assert GUARD.parse(f"{target.scheme}://{target.authority}{target.path}") == target


USES = {
    *("IPv4 in an outdated form", "a private translation of IPv4", "benchmarks", "broadcast"),
    *("documentation", "future use", "metadata services", "multicast", "private networks"),
    *("networks behind a provider", "deprecated private networks", "special use", "the local link"),
    *("the machine itself", "tunnels", "discarded traffic"),
}


@pytest.mark.parametrize("host", LOOPBACK + METADATA + PRIVATE)
def test_who_is_refused_an_address_is_told_what_it_is_for(host: str) -> None:
    with pytest.raises(AddressRefused) as refused:
        GUARD.parse(f"http://{host}/")
    use = refused.value.message.partition(" is reserved for ")[2]
    assert use.partition(";")[0] in USES


@pytest.mark.parametrize("url", [None, 5, b"http://example.com/", ["http://example.com/"], {}])
def test_what_is_no_text_is_no_url(url: Any) -> None:
    with pytest.raises(BadInput, match=f"a URL must be text, not {type(url).__name__}") as refused:
        GUARD.parse(url)
    assert refused.value.code == "bad_url"
