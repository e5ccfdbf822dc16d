"""Allowed addresses of webhook calls: no loopback and no private networks.

Users choose the URLs of timers, and a server can reach more than its users: itself, its neighbours,
and the metadata service of its cloud (server-side request forgery). So URLs are parsed strictly,
all spellings of IPv4 addresses are recognized, and every address of a name is checked. The
connection is made to the checked address (`webhooks/http/sender.py`), because a second lookup could
return another one.

Operators can allow further networks, names and ports.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NoReturn
from urllib.parse import quote

import msgspec

from onceward import limits
from onceward.errors import AddressRefused, BadInput, OncewardError
from onceward.extras import missing

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_PORTS = {"http": 80, "https": 443}

_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE | re.DOTALL)
# Characters that end a line or a word in some parsers, or count as a slash.
_NEVER = re.compile(r"[\x00-\x20\x7f\\]")
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
# Characters that are not escaped in a path and a query.
_PATH_SAFE = "!$%&'()*+,-./:;=?@[]_~"
_PATH = re.compile(rf"[A-Za-z0-9{re.escape(_PATH_SAFE)}]*")

# Refused networks, the most specific first. A star marks networks of internal services, which an
# allowed name may resolve to.
_REFUSED_V4 = {
    "169.254.169.254/32": "metadata services",
    "169.254.170.2/32": "metadata services",
    "168.63.129.16/32": "metadata services",
    "100.100.100.200/32": "metadata services",
    "192.0.0.192/32": "metadata services",
    "0.0.0.0/8": "the machine itself",
    "127.0.0.0/8": "*the machine itself",
    "10.0.0.0/8": "*private networks",
    "172.16.0.0/12": "*private networks",
    "192.168.0.0/16": "*private networks",
    "100.64.0.0/10": "*networks behind a provider",
    "169.254.0.0/16": "the local link",
    "192.0.0.0/24": "special use",
    "192.88.99.0/24": "special use",
    "192.0.2.0/24": "documentation",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "198.18.0.0/15": "benchmarks",
    "224.0.0.0/4": "multicast",
    "255.255.255.255/32": "broadcast",
    "240.0.0.0/4": "future use",
}
_REFUSED_V6 = {
    "fd00:ec2::254/128": "metadata services",
    "fd20:ce::254/128": "metadata services",
    "::/128": "the machine itself",
    "::1/128": "*the machine itself",
    "fc00::/7": "*private networks",
    "fe80::/10": "the local link",
    "fec0::/10": "deprecated private networks",
    "ff00::/8": "multicast",
    "100::/64": "discarded traffic",
    "64:ff9b:1::/48": "a private translation of IPv4",
    "::/96": "IPv4 in an outdated form",
    "::ffff:0:0:0/96": "a private translation of IPv4",
    "2001::/32": "tunnels",
    "2001:2::/48": "benchmarks",
    "2001::/23": "special use",
    "2001:db8::/32": "documentation",
    "3fff::/20": "documentation",
}
_REFUSED: dict[int, list[tuple[Network, str]]] = {
    4: [(IPv4Network(network), use) for network, use in _REFUSED_V4.items()],
    6: [(IPv6Network(network), use) for network, use in _REFUSED_V6.items()],
}
_GLOBAL_V6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
# The interface part of an address with embedded IPv4, for any network part.
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)


class Target(msgspec.Struct, frozen=True):
    """A parsed URL."""

    scheme: str
    host: str
    """A name in ASCII and lower case, or an address in canonical form."""
    port: int
    path: str
    """The path and query, as sent."""
    address: Address | None
    """Set if the host is an address."""
    authority: str
    """Host and port, as in the `Host` header."""

    @property
    def key(self) -> tuple[str, str, int]:
        """The identity of a server: URLs with the same key are treated as one."""
        return self.scheme, self.host, self.port


@dataclass(frozen=True, slots=True)
class _Allowed:
    """One entry of the allow list."""

    where: Network | str
    port: int | None
    """None for the default ports, 0 for all."""


class Guard:
    """Checks URLs and addresses. Stateless except for its settings."""

    def __init__(self, allow: Sequence[str] = (), ports: Sequence[int] = (80, 443)) -> None:
        """`allow` has networks ("10.1.0.0/16"), addresses and names that may be called although
        they are not public.

        An entry with a port ("10.1.0.0/16:8080", "[fd00::/8]:8080", "intranet:8080", or ":*" for
        all) is valid for that port, otherwise for the default `ports`. A name does not allow
        link-local and similar addresses; list their network for that. Raises `BadInput` for invalid
        entries.
        """
        self._allowed = [_read_allowed(entry) for entry in allow]
        self._ports = frozenset(ports)
        for port in self._ports:
            if not 0 < port < 65536:
                raise BadInput(f"a port must be a number from 1 to 65535, not {port}")
        # Many URLs differ only in their path.
        self._origin = lru_cache(limits.ORIGINS_KNOWN_MAX)(self._read_origin)

    def parse(self, url: str) -> Target:
        """Parse a URL. Raises `BadInput` for an invalid URL, and `AddressRefused` for a port or
        literal address that is not allowed."""
        if not isinstance(url, str):
            _bad(f"a URL must be text, not {type(url).__name__}")
        if len(url) > limits.URL_CHARS_MAX:
            _bad(f"it has more than {limits.URL_CHARS_MAX} characters")
        if _NEVER.search(url):
            _bad("it contains spaces, control characters or backslashes")
        parts = _URL.fullmatch(url)
        if parts is None:
            _bad("it must start with http:// or https://")
        scheme, authority, path = parts.groups()
        origin = self._origin(scheme.lower(), authority)
        if not path.startswith("/"):
            path = "/" + path
        if not _PATH.fullmatch(path):
            try:
                path = quote(path, safe=_PATH_SAFE)
            except UnicodeEncodeError:
                _bad("it is not valid Unicode")
        return Target(
            origin.scheme, origin.host, origin.port, path, origin.address, origin.authority
        )

    def _read_origin(self, scheme: str, authority: str) -> Target:
        """Parse the part before the path, and check it as far as possible without DNS."""
        if "@" in authority:
            _bad("it must not contain a user or password")
        name, port_text = _split_port(authority)
        port = _PORTS[scheme] if port_text is None else _read_port(port_text)
        if port is None:
            _bad("the port must be a number from 1 to 65535")
        host, address = _read_host(name)
        origin = Target(scheme, host, port, "/", address, authority_of(scheme, host, port))
        if address is not None:
            self.judge(address, origin)
        elif port not in self._ports and not self._allows_port(host, port):
            raise AddressRefused(
                f"port {port} of {host} is not allowed for webhook calls; see webhook_ports"
            )
        return origin

    def judge(self, address: Address | str, target: Target | None = None) -> None:
        """Raise `AddressRefused` for an address that is neither public nor allowed.

        It is checked for the target or, without one, for any name and a default port.
        """
        try:
            address = ip_address(address)
        except ValueError:
            raise AddressRefused(f"{address} is not an address; use an IP address") from None
        if isinstance(address, IPv6Address):
            if address.scope_id is not None:
                raise AddressRefused(
                    f"{address} is reserved for the local link; use a public address"
                )
            address = address.ipv4_mapped or address
        host = target.host if target else ""
        port = target.port if target else None
        by_name = False
        for entry in self._allowed:
            if not self._fits(entry, port):
                continue
            if entry.where == host:
                by_name = True
            elif not isinstance(entry.where, str) and _within(address, entry.where):
                return
        if port is not None and port not in self._ports and not by_name:
            raise AddressRefused(
                f"port {port} of {address} is not allowed for webhook calls; see webhook_ports"
            )
        use = _use(address)
        if use.startswith("*") and by_name:
            return
        if use:
            which = f"{host} resolves to {address}, which" if target else f"{address}"
            if target and target.address is not None:
                which = target.host
            raise AddressRefused(
                f"{which} is reserved for {use.removeprefix('*')}; use a public address"
            )
        for inner in _embedded(address):
            self.judge(inner, target)

    def judge_all(self, addresses: Sequence[str], target: Target) -> None:
        """Raise `AddressRefused` if any address of a name is not allowed.

        A name with both public and private addresses is likely an attack.
        """
        for address in addresses:
            self.judge(address, target)

    def _fits(self, entry: _Allowed, port: int | None) -> bool:
        if entry.port is None:
            return port is None or port in self._ports
        return entry.port == 0 or entry.port == port

    def _allows_port(self, host: str, port: int) -> bool:
        """Whether a port may be allowed; with networks in the list, the addresses decide."""
        return any(
            entry.port in (0, port) and (entry.where == host or not isinstance(entry.where, str))
            for entry in self._allowed
        )


def _read_host(name: str) -> tuple[str, Address | None]:
    """Return the host in canonical form, and its address if it is one."""
    if name.startswith("["):
        if "%" in name:
            raise AddressRefused(f"{name} is reserved for the local link; use a public address")
        try:
            address = IPv6Address(name[1:-1] if name.endswith("]") else "")
        except ValueError:
            _bad(f"{name} is not an IPv6 address")
        return _spell(address), address
    host = _read_name(name)
    if host is None:
        _bad(f"{name!r} is not a host name" if name else "it has no host")
    last = host.rpartition(".")[2]
    if not _NUMBER.fullmatch(last):
        return host, None
    # Names cannot end in a number, so this is an IPv4 address or a mistake.
    number = _read_ipv4(host)
    if number is None:
        _bad(f"{name} is neither a host name nor an IPv4 address")
    return str(number), number


def _spell(address: IPv6Address) -> str:
    """The usual text form. Python before 3.13 writes a mapped IPv4 address in hexadecimal; the
    form is part of keys, so it is the same on all versions."""
    mapped = address.ipv4_mapped
    return str(address) if mapped is None else f"::ffff:{mapped}"


def _read_name(name: str) -> str | None:
    """The name in ASCII and lower case, without a trailing dot; None if it is invalid."""
    host = name.lower()
    if not host.isascii():
        try:
            import idna  # imported here because few names need it
        except ModuleNotFoundError as error:
            raise OncewardError(
                f"host names with non-ASCII letters need {missing(error)}",
                code="bad_settings",
            ) from error
        try:
            host = idna.encode(host, uts46=True).decode("ascii")
        except (idna.IDNAError, UnicodeError):
            return None
    host = host.removesuffix(".")
    if len(host) > limits.NAME_CHARS_MAX or not _NAME.fullmatch(host):
        return None
    return host


def _read_ipv4(text: str) -> IPv4Address | None:
    """Parse an address like inet_aton: one to four numbers, decimal, octal or hexadecimal; the last
    one fills the remaining bytes."""
    numbers: list[int] = []
    parts = text.split(".")
    if len(parts) > 4:
        return None
    for part in parts:
        if not _NUMBER.fullmatch(part):
            return None
        try:
            if part.startswith("0x"):
                numbers.append(int(part[2:] or "0", 16))
            else:
                numbers.append(int(part, 8 if part.startswith("0") else 10))
        except ValueError:
            return None
    *heads, last = numbers
    if any(head > 255 for head in heads) or last >= 256 ** (4 - len(heads)):
        return None
    return IPv4Address(sum(head << 8 * (3 - at) for at, head in enumerate(heads)) + last)


def _use(address: Address) -> str:
    """The reserved use of an address; empty for a public one."""
    for network, use in _REFUSED[address.version]:
        if address in network:
            return use
    if isinstance(address, IPv6Address) and address not in _GLOBAL_V6 and address not in _NAT64:
        return "future use"
    return ""


def _embedded(address: Address) -> list[IPv4Address]:
    """The IPv4 addresses embedded in an address, to which traffic may be routed."""
    if isinstance(address, IPv4Address):
        return []
    value, found = int(address), []
    if address in _NAT64 or value >> 32 & 0xFFFF_FFFF in _ISATAP:
        found.append(IPv4Address(value & 0xFFFF_FFFF))
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    return found


def _within(address: Address, network: Network) -> bool:
    return address.version == network.version and address in network


def authority_of(scheme: str, host: str, port: int) -> str:
    """Host and port as in a URL, without the default port of the scheme."""
    shown = f"[{host}]" if ":" in host else host
    return shown if port == _PORTS[scheme] else f"{shown}:{port}"


def _split_port(authority: str) -> tuple[str, str | None]:
    """Split "host:port"; the port is None without a colon."""
    if authority.startswith("["):
        name, bracket, rest = authority.partition("]")
        if bracket and (not rest or rest.startswith(":")):
            return name + bracket, rest[1:] if rest else None
        return authority, None
    name, colon, port = authority.partition(":")
    return name, port if colon else None


def _read_port(text: str) -> int | None:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        return None
    return int(text)


def _read_allowed(text: str) -> _Allowed:
    where, port_text = text, None
    if text.count(":") < 2 or text.startswith("["):
        where, port_text = _split_port(text)
    port = None
    if port_text is not None:
        port = 0 if port_text == "*" else _read_port(port_text)
        if port is None:
            raise BadInput(f"{port_text!r} in {text!r} is not a port; use a number, or * for all")
    if where.startswith("[") and where.endswith("]"):
        where = where[1:-1]
    try:
        return _Allowed(ip_network(where), port)
    except ValueError as error:
        name = _read_name(where)
        if name is None or _NUMBER.fullmatch(name.rpartition(".")[2]):
            raise BadInput(f"{text!r} is not a network, address or name: {error}") from None
        return _Allowed(name, port)


def _bad(why: str) -> NoReturn:
    # The URL is not repeated, since it may contain a password.
    raise BadInput(f"cannot call this URL: {why}. Use another URL", code="bad_url")
