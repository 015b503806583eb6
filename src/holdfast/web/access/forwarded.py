"""Determines what a browser requested (address, host, scheme, path prefix), also behind a trusted proxy."""

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from holdfast.web.refusals import bad_request, not_allowed
from holdfast.web.settings import ServerSettings

_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]{1,64}){0,8}")
_FORWARDED = ("x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-host")
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253})(?::(?P<port>\d{1,5}))?")


class Asked(Struct, frozen=True, kw_only=True):
    """Where a request came from and what it addressed, also behind a trusted proxy.

    `host`: as the browser names it, "gpu-1:8470". `prefix`: path prefix of all URLs, "/holdfast" or empty.
    `is_direct`: no proxy header is present. `is_trusted`: the sender is a trusted proxy.
    """

    address: str
    host: str
    scheme: str
    prefix: str
    path: str
    is_direct: bool
    is_trusted: bool

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.host}".lower()


class Proxies:
    """The addresses of trusted proxies. Raises ValueError for an invalid address."""

    def __init__(self, trusted: Iterable[str]) -> None:
        self._networks = [ipaddress.ip_network(one, strict=False) for one in trusted]

    def has(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        found = getattr(found, "ipv4_mapped", None) or found
        return any(found.version == one.version and found in one for one in self._networks)


class Hosts:
    """The host names that a request may address. A request for another host name may be a DNS rebinding attack."""

    def __init__(self, settings: ServerSettings) -> None:
        own = socket.gethostname()
        names = {"localhost", own, own.partition(".")[0], settings.host, *settings.names}
        self._names = {name.lower().rstrip(".") for name in names if name}

    def check(self, host: str) -> None:
        """Checks the requested host name. Raises Refusal.

        IP addresses are allowed, because no other name can point to them.
        """
        found = _HOST.fullmatch(host)
        name = found["name"].lower().rstrip(".") if found else ""
        if not found or not (name in self._names or _is_address(name)):
            shown = host[:100] if host.isprintable() else ""
            raise bad_request(
                f"the host name {shown!r} is not allowed: start the server with --host-name to allow it"
            )


def asked(
    scope: Mapping[str, Any], headers: Mapping[str, str], settings: ServerSettings, proxies: Proxies
) -> Asked:
    """Returns where a request came from and what it addressed. Raises Refusal."""
    peer = (scope.get("client") or ("", 0))[0]
    is_trusted = proxies.has(peer)
    host, scheme, prefix, address = headers.get("host", ""), str(scope["scheme"]), settings.root_path, peer
    scheme = {"ws": "http", "wss": "https"}.get(scheme, scheme)
    if is_trusted:
        address = _browser(headers.get("x-forwarded-for", ""), peer, proxies)
        host = _last(headers.get("x-forwarded-host", "")) or host
        protocol = _last(headers.get("x-forwarded-proto", "")).lower()
        scheme = protocol if protocol in ("http", "https") else scheme
        prefix = headers.get("x-forwarded-prefix", "").rstrip("/") or prefix
    if not _PREFIX.fullmatch(prefix):
        raise bad_request("the header X-Forwarded-Prefix is not a path")
    path = str(scope["path"])
    if prefix and (path == prefix or path.startswith(f"{prefix}/")):
        path = path[len(prefix) :] or "/"
    return Asked(
        address=address,
        host=host,
        scheme=scheme,
        prefix=prefix,
        path=path,
        is_direct=not any(name in headers for name in _FORWARDED),
        is_trusted=is_trusted,
    )


def check_origin(seen: Asked, headers: Mapping[str, str]) -> None:
    """Checks that a request that a web page sends comes from a page of this server. Raises Refusal."""
    origin = headers.get("origin")
    if origin is None:
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            raise not_allowed("the request comes from a page of another site")
        return
    if origin.lower() != seen.origin:
        raise not_allowed(
            f"the request comes from a page of another site: this server's origin is {seen.origin}"
        )


def _browser(forwarded: str, peer: str, proxies: Proxies) -> str:
    """Returns the last address in X-Forwarded-For that is no trusted proxy; earlier ones could be forged."""
    for one in reversed(forwarded.split(",")):
        address = one.strip().strip('"')
        try:
            ipaddress.ip_address(address)
        except ValueError:
            return peer
        if not proxies.has(address):
            return address
        peer = address
    return peer


def _last(header: str) -> str:
    return header.rpartition(",")[2].strip()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
