"""Every spelling of an address and every trick with a URL that is known to us."""

from ipaddress import IPv6Address, ip_address

import pytest

from onceward.errors import AddressRefused, BadInput, OncewardError
from onceward.webhooks.http.addresses import Guard, Target

GUARD = Guard()
GUARD_OF_ALL = Guard(["0.0.0.0/0", "::/0"])

# Of 127.0.0.1, as inet_aton, browsers, or careless code read them.
LOOPBACK = [
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0X7F000001",
    "0x7f.1",
    "0x7F.0x0.0x0.0x1",
    "017700000001",
    "0177.0.0.1",
    "0177.0.0.01",
    "00000177.0.0.1",
    "0177.0x0.0.1",
    "127.0x000001",
    "127.000000000000000001",
    "127.255.255.254",
    "0",
    "0x",
    "0.0.0.0",
    "0.1.2.3",
    "\uff11\uff12\uff17.0.0.1",  # full-width digits
    "127\u30020\uff0e0\uff611",  # other full stops
    "\u2460\u2461\u2466.\u24ea.\u24ea.\u2460",  # digits in circles
    "\U0001d7cf\U0001d7d0\U0001d7d5.0.0.1",  # mathematical bold ones
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000::0001]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::FFFF:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b:1::7f00:1]",
    "[64:ff9b:1:7f00:0:100::]",
    "[2002:7f00:1::]",
    "[2002:7f00:1::1234]",
    "[2001:0:7f00:1::]",
    "[2001:0:808:808:0:0:80ff:fffe]",  # Teredo, with the client inverted
    "[2606:4700::5efe:7f00:1]",
    "[2606:4700::200:5efe:127.0.0.1]",
    "[fe80::5efe:127.0.0.1]",
    "[fe80::1%25lo]",
    "[fe80::1%lo]",
    "[::1%25lo]",
]
PRIVATE = [
    "10.0.0.0",
    "10.255.255.255",
    "0xa.1",
    "167772161",
    "012.0.0.1",
    "172.16.0.0",
    "172.31.255.255",
    "192.168.0.0",
    "192.168.255.255",
    "100.64.0.0",
    "100.127.255.255",
    "169.254.0.0",
    "169.254.255.255",
    "192.0.0.0",
    "192.0.0.255",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.0",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.0",
    "239.255.255.255",
    "240.0.0.0",
    "255.255.255.254",
    "255.255.255.255",
    "4294967295",
    "[fc00::]",
    "[fdff:ffff::1]",
    "[fe80::]",
    "[febf::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[ff0e::1]",
    "[100::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[2001:2::1]",
    "[2001:10::1]",
    "[2001:20::1]",
    "[5f00::1]",
    "[4000::1]",
    "[200::1]",
    "[::ffff:10.1.2.3]",
    "[64:ff9b::10.1.2.3]",
    "[2002:a01:203::1]",
    "[2606:4700::5efe:a01:203]",
]
METADATA = [
    "169.254.169.254",
    "0xa9fea9fe",
    "2852039166",
    "0251.0376.0251.0376",
    "169.16689662",
    "169.254.170.2",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::169.254.169.254]",
    "[2002:a9fe:a9fe::]",
]
PUBLIC = {
    "8.8.8.8": "8.8.8.8",
    "0x08080808": "8.8.8.8",
    "8.8.2056": "8.8.8.8",
    "010.010.010.010": "8.8.8.8",
    "9.255.255.255": "9.255.255.255",
    "11.0.0.0": "11.0.0.0",
    "100.63.255.255": "100.63.255.255",
    "100.128.0.0": "100.128.0.0",
    "172.15.255.255": "172.15.255.255",
    "172.32.0.0": "172.32.0.0",
    "126.255.255.255": "126.255.255.255",
    "128.0.0.0": "128.0.0.0",
    "223.255.255.255": "223.255.255.255",
    "[2606:4700:4700::1111]": "2606:4700:4700::1111",
    "[2606:4700:4700:0:0:0:0:1111]": "2606:4700:4700::1111",
    "[::ffff:8.8.8.8]": "::ffff:8.8.8.8",
    "[::ffff:808:808]": "::ffff:8.8.8.8",
    "[64:ff9b::8.8.8.8]": "64:ff9b::808:808",
    "[2002:808:808::1]": "2002:808:808::1",
    "[2606:4700::5efe:808:808]": "2606:4700::5efe:808:808",
}
NO_URL = [
    "",
    "http",
    "http:",
    "http:/",
    "http://",
    "http:///",
    "http://?",
    "http://:80/",
    "//example.com/",
    "/path",
    "example.com",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "javascript:alert(1)",
    "http:example.com",
    "http:/example.com",
    "http:\\\\example.com",
    "http://example.com\\@127.0.0.1/",
    "http://user@example.com/",
    "http://user:password@example.com/",
    "http://@example.com/",
    "http://example.com@127.0.0.1/",
    "http://127.0.0.1#@example.com@/".replace("#@", "@"),
    "http://example.com:@127.0.0.1/",
    "http://exa mple.com/",
    " http://example.com/",
    "http://example.com/ ",
    "http://example.com/a b",
    "http://example.com/\r\nX-Evil: 1",
    "http://example.com/\n",
    "http://example.com/\x00",
    "http://exam\tple.com/",
    "http://example.com\x7f/",
    "http://example.com:/",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:-1/",
    "http://example.com:+80/",
    "http://example.com:8_0/",
    "http://example.com:80:80/",
    "http://example.com:\u0668\u0660/",  # digits, but no ASCII ones
    "http://example.com:99999999999999999999/",
    "http://example.com:http/",
    "http://%31%32%37.0.0.1/",
    "http://127.0.0.1%2f@example.com/",
    "http://example%2ecom/",
    "http://exam*ple.com/",
    "http://exam,ple.com/",
    "http://.example.com/",
    "http://example..com/",
    "http://example.com../",
    "http://./",
    "http://-example.com/",
    "http://example-.com/",
    "http://" + "a" * 64 + ".com/",
    "http://" + ".".join(["a" * 60] * 5) + "/",
    "http://1.2.3.4.0/",
    "http://1.2.3.256/",
    "http://256.1.1.1/",
    "http://1.2.65536/",
    "http://1.16777216/",
    "http://4294967296/",
    "http://08.8.8.8/",
    "http://0xg.0.0.1/",
    "http://example.1/",
    "http://example.0x7f/",
    "http://1..1/",
    "http://[::1/",
    "http://[2606:4700::1/",
    "http://::1/",
    "http://[]/",
    "http://[::1]x/",
    "http://[::1]]/",
    "http://[::1]80/",
    "http://[2606:4700::1]x80/",
    "http://[127.0.0.1]/",
    "http://[1::2::3]/",
    "http://[v1.fe80::1]/",
    "http://[::ffff:127.1]/",
    "http://x[::1]/",
    "http://\u2100.com/",  # becomes "a/c"
    "http://example.com\uff0f.evil.com/",
    "http://example.com\uff20evil.com/",
    "http://\ud800.com/",
    "http://example.com/\ud800",
    "http://\u200d.com/",
    "http://example.com/" + "a" * 2048,
]


def refusal(url: str, guard: Guard = GUARD) -> OncewardError:
    with pytest.raises(BadInput) as refused:
        guard.parse(url)
    return refused.value


@pytest.mark.parametrize("host", LOOPBACK + PRIVATE + METADATA)
@pytest.mark.parametrize("scheme", ["http", "HTTPS"])
def test_an_address_that_is_not_public_is_refused_in_every_spelling(scheme: str, host: str) -> None:
    assert refusal(f"{scheme}://{host}/").code == "address_refused"


@pytest.mark.parametrize("host", METADATA)
def test_no_allowed_name_leads_to_a_metadata_service(host: str) -> None:
    guard = Guard(["intranet"])
    target = guard.parse("http://intranet/")
    address = GUARD_OF_ALL.parse(f"http://{host}/").address
    assert address is not None
    with pytest.raises(AddressRefused):
        guard.judge(address, target)


@pytest.mark.parametrize(("host", "read"), PUBLIC.items())
def test_a_public_address_is_called_in_its_usual_spelling(host: str, read: str) -> None:
    target = GUARD.parse(f"http://{host}/")
    assert target.host == read
    assert target.address == ip_address(read)


@pytest.mark.parametrize("url", NO_URL)
def test_what_is_no_url_to_call_is_refused(url: str) -> None:
    refused = refusal(url)
    assert refused.code == "bad_url"
    assert "password" not in refused.message.replace("user or password", "")


def test_who_names_a_user_or_no_host_is_told_so() -> None:
    assert "user or password" in refusal("http://user@example.com/").message
    assert "no host" in refusal("http://:80/").message
    assert "'a*b' is not a host name" in refusal("http://a*b/").message


def test_what_has_one_key_is_one_server() -> None:
    key = GUARD.parse("http://example.com/a").key
    assert key == GUARD.parse("HTTP://EXAMPLE.com:80/b").key
    others = ("https://example.com/", "http://example.org/", "http://example.com:443/")
    assert key not in {GUARD.parse(url).key for url in others}


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://example.com", Target("http", "example.com", 80, "/", None, "example.com")),
        ("HTTPS://EXAMPLE.com./", Target("https", "example.com", 443, "/", None, "example.com")),
        (
            "http://example.com:443/a?b=c&d=%20#e?f",
            Target("http", "example.com", 443, "/a?b=c&d=%20", None, "example.com:443"),
        ),
        ("https://a_b.c-d:443?x", Target("https", "a_b.c-d", 443, "/?x", None, "a_b.c-d")),
        (
            "http://[2606:4700::0]:80/@:",
            Target(
                *("http", "2606:4700::", 80, "/@:"), IPv6Address("2606:4700::"), "[2606:4700::]"
            ),
        ),
        (
            "http://b\u00fccher.example/\u00fc?q=\u00fc",
            Target(
                "http", "xn--bcher-kva.example", 80, "/%C3%BC?q=%C3%BC", None,
                "xn--bcher-kva.example",
            ),
        ),
        (
            "http://fa\u00df.example/<\">",
            Target("http", "xn--fa-hia.example", 80, "/%3C%22%3E", None, "xn--fa-hia.example"),
        ),
        (
            "http://\uff25xample\u3002com/../%2e%2E/..",
            Target("http", "example.com", 80, "/../%2e%2E/..", None, "example.com"),
        ),
        ("http://0x7f.1.b/", Target("http", "0x7f.1.b", 80, "/", None, "0x7f.1.b")),
    ],
)  # fmt: skip
def test_a_url_is_taken_apart(url: str, target: Target) -> None:
    assert GUARD.parse(url) == target


def test_a_url_of_the_longest_kind_is_taken() -> None:
    url = "http://example.com/" + "a" * (2048 - 19)
    assert len(GUARD.parse(url).path) == 2048 - 18
    name = ".".join(["a" * 63] * 3 + ["b" * 61])
    assert GUARD.parse(f"http://{name}/").host == name
    assert refusal(f"http://{name}b/").code == "bad_url"


def test_ports_other_than_the_usual_ones_are_refused() -> None:
    for port in (22, 25, 79, 81, 444, 6379, 8080, 65535):
        refused = refusal(f"http://example.com:{port}/")
        assert refused.code == "address_refused"
        assert str(port) in refused.message
    assert Guard(ports=[8080]).parse("http://example.com:8080/").port == 8080
    assert refusal("http://example.com/", Guard(ports=[8080])).code == "address_refused"


def test_one_bad_address_among_good_ones_refuses_the_name() -> None:
    target = GUARD.parse("https://example.com/")
    GUARD.judge_all(["8.8.8.8", "2606:4700::1"], target)
    for bad in ("10.0.0.1", "::1", "fe80::1%eth0", "::ffff:127.0.0.1"):
        with pytest.raises(AddressRefused, match=r"example\.com resolves to|local link"):
            GUARD.judge_all(["8.8.8.8", bad, "2606:4700::1"], target)


@pytest.mark.parametrize("text", ["", "x", "1.2.3", "127.1", "1.2.3.4/32", "[::1]", "1.2.3.4%a"])
def test_what_is_no_address_is_not_let_through(text: str) -> None:
    with pytest.raises(AddressRefused):
        GUARD.judge(text)


# What is allowed, and what that opens and does not open.
ALLOWED = {
    "127.0.0.1/32": (
        {"http://127.0.0.1/", "https://127.1/", "http://[::ffff:127.0.0.1]/"},
        {"http://127.0.0.2/", "http://127.0.0.1:8080/", "http://[::1]/"},
    ),
    "127.0.0.1:8080": (
        {"http://127.0.0.1:8080/", "http://0x7f000001:8080/"},
        {"http://127.0.0.1/", "http://127.0.0.1:8081/", "http://8.8.8.8:8080/"},
    ),
    "127.0.0.1:*": (
        {"http://127.0.0.1:1/", "http://127.0.0.1/"},
        {"http://127.0.0.2:1/", "http://8.8.8.8:1/"},
    ),
    "10.1.0.0/16": (
        {"http://10.1.255.1/", "http://[64:ff9b::10.1.0.1]/", "http://[2002:a01:1::]/"},
        {"http://10.2.0.0/", "http://10.1.0.1:8080/"},
    ),
    "[fd00::/8]:8080": (
        {"http://[fd00::1]:8080/"},
        {"http://[fd00::1]/", "http://[fc00::1]:8080/"},
    ),
    "::1": ({"http://[::1]/"}, {"http://127.0.0.1/", "http://[::1]:81/"}),
    "[::1]:81": ({"http://[::1]:81/"}, {"http://[::1]/"}),
    "169.254.0.0/16": ({"http://169.254.169.254/"}, {"http://[fe80::1]/"}),
    "fe80::/10": ({"http://[fe80::1]/"}, {"http://[fe80::1%25lo]/"}),
    "intranet:*": ({"http://intranet:8080/"}, {"http://a:8080/"}),
    "intranet:8080": ({"http://INTRANET.:8080/"}, {"http://intranet:8081/", "http://a:8080/"}),
    "example.com": ({"http://example.com/"}, {"http://example.com:81/", "http://127.0.0.1/"}),
    "b\u00fccher.example:81": ({"http://xn--bcher-kva.example:81/"}, {"http://b.example:81/"}),
}  # fmt: skip


@pytest.mark.parametrize("entry", ALLOWED)
def test_what_is_allowed_opens_this_and_nothing_else(entry: str) -> None:
    opened, closed = ALLOWED[entry]
    guard = Guard([entry])
    for url in opened:
        guard.parse(url)
    for url in closed:
        assert refusal(url, guard).code == "address_refused", url


def test_an_allowed_name_opens_private_addresses_for_this_name_only() -> None:
    guard = Guard(["intranet", "admin:8080"])
    intranet, admin = guard.parse("http://intranet/"), guard.parse("http://admin:8080/")
    other = guard.parse("http://other/")
    for address in ("10.0.0.1", "127.0.0.1", "fd00::1", "100.64.0.1", "8.8.8.8"):
        guard.judge(address, intranet)
        guard.judge(address, admin)
        if address != "8.8.8.8":
            with pytest.raises(AddressRefused):
                guard.judge(address, other)
            with pytest.raises(AddressRefused):
                guard.judge(address)
            with pytest.raises(AddressRefused):
                guard.judge(address, guard.parse("http://admin/"))
    for address in ("169.254.1.1", "0.0.0.0", "224.0.0.1", "fe80::1", "ff02::1", "240.0.0.1"):
        with pytest.raises(AddressRefused):
            guard.judge(address, intranet)


def test_an_allowed_network_opens_no_address_of_one_link_and_a_name_nothing_without_it() -> None:
    for entry, address in (("fe80::/10", "fe80::1%eth0"), ("x", "10.0.0.1")):
        with pytest.raises(AddressRefused):
            Guard([entry]).judge(address)


def test_a_port_of_an_allowed_network_is_not_opened_on_public_addresses() -> None:
    guard = Guard(["10.0.0.0/8:8080"])
    target = guard.parse("http://example.com:8080/")
    guard.judge("10.1.2.3", target)
    with pytest.raises(AddressRefused, match="port 8080"):
        guard.judge("8.8.8.8", target)


@pytest.mark.parametrize(
    "entry",
    ["", "10.0.0.1/8", "10.0.0.0/33", "300.1.1.1", "127.1", "a b", "a:x", "a:0", "a:", "*.a",
     "http://a", "[::1", "::1:99999:", "10.0.0.0/8:"],
)  # fmt: skip
def test_what_cannot_be_allowed_is_refused(entry: str) -> None:
    with pytest.raises(BadInput):
        Guard([entry])


def test_what_is_no_port_is_refused() -> None:
    for port in (0, -1, 65536):
        with pytest.raises(BadInput, match="port"):
            Guard(ports=[port])
    Guard(ports=[1, 65535])
