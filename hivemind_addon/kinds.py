"""What a value in the settings file or in a profile may be, beyond plain numbers and words."""

from __future__ import annotations

import ipaddress
import re
import warnings
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hivemind_addon import schema
from hivemind_addon.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST_BODY_BYTES, MOST_BODY_BYTES = 2**10, 4 * 2**30

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_DOTTED = rf"{_LABEL}(?:\.{_LABEL})*"
_HOST = re.compile(_DOTTED)
_LISTED = re.compile(rf"(?:(?:\*\.)?{_DOTTED}|\[[0-9a-f:.]+\])(?::([0-9]{{1,5}}))?")
_SIZE = re.compile(r"([0-9]{1,12}) ?([kmg]?)b?")
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_USERINFO = re.compile(r"(?<=//)[^/?#]*@")
_NAME = r"[a-z0-9][a-z0-9._-]{0,63}"


def set_of[T](item: schema.Kind[T]) -> schema.Kind[frozenset[T]]:
    """A list whose order and repetitions mean nothing."""
    items = schema.list_of(item)
    return schema.Kind(items.allowed, lambda place, value: frozenset(items.read(place, value)))


def mapping_of[T](names: schema.Kind[str], values: schema.Kind[T]) -> schema.Kind[Mapping[str, T]]:
    """A mapping with keys of the user's own, in the order of the file."""

    def pair(place: schema.Place, found: tuple[str, object]) -> tuple[str, T]:
        return names.read(place, found[0]), values.read(place, found[1])

    def read(place: schema.Place, value: object) -> Mapping[str, T]:
        if not isinstance(value, dict):
            raise place.refuse(value, f"a mapping from {names.allowed} to {values.allowed}")
        result: dict[str, T] = {}
        for name, each in schema.read_all(
            pair, [(place.child(key), (key, value[key])) for key in value]
        ):
            if name in result:
                raise place.child(name).complain("got this key twice, allowed: once")
            result[name] = each
        return MappingProxyType(result)

    return schema.Kind(values.allowed, read)


def word(pattern: str, allowed: str) -> schema.Kind[str]:
    """A text that a regular expression matches from end to end."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
            raise ValueError
        return value

    return schema.checked(allowed, parse)


def regex(flags: re.RegexFlag, form: str = "{}") -> schema.Kind[re.Pattern[str]]:
    """A regular expression, compiled inside `form`."""

    def parse(value: object) -> re.Pattern[str]:
        if not isinstance(value, str) or not value:
            raise ValueError
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # what Python only warns of is a mistake too
                re.compile(value, flags)
                return re.compile(form.format(value), flags)
        except (re.error, Warning, RecursionError, OverflowError) as error:
            raise ValueError(str(error)) from None

    return schema.checked("a regular expression", parse)


def base_url(value: object) -> str:
    """Nothing is mended: urlsplit would drop line breaks, and a stray `?` or `#` would swallow the path.

    Raises:
        ValueError: it is not an http or https URL of host, optional port and path.
    """
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise ValueError
    if set(value) & set(" ?#@\\"):
        raise ValueError
    url = urlsplit(value)
    host = url.hostname or ""
    if url.scheme not in ("http", "https") or url.netloc.endswith(":") or url.port == 0:
        raise ValueError
    if ":" in host:
        ipaddress.IPv6Address(host)
    elif not _HOST.fullmatch(host):
        raise ValueError
    return value


def _read_base_url(place: schema.Place, value: object) -> str:
    try:
        return base_url(value)
    except ValueError:
        # A credential in the URL is one of the errors, and errors are logged.
        shown = _USERINFO.sub("***@", value) if isinstance(value, str) else value
        raise place.refuse(shown, BASE_URL.allowed) from None


def _server_url(value: object) -> str:
    url = base_url(value)
    if urlsplit(url).path not in ("", "/"):
        raise ValueError
    return url.rstrip("/")


def _host_name(value: object) -> str:
    if not isinstance(value, str) or not value.isascii() or not _HOST.fullmatch(value.lower()):
        raise ValueError
    return value.lower()


def _listed_host(value: object) -> str:
    match = _LISTED.fullmatch(value.lower()) if isinstance(value, str) and value.isascii() else None
    if match is None or (match[1] and not 0 < int(match[1]) < 65_536):
        raise ValueError
    if "[" in match[0]:
        ipaddress.IPv6Address(match[0][1 : match[0].index("]")])
    return match[0]


def _bucket_glob(value: str) -> str:
    if not value or (value.count("/") < 2 and not set(value) & set("*?[")):
        raise ValueError
    return value


def _loopback(value: object) -> str:
    if not isinstance(value, str) or not is_loopback(value):
        raise ValueError
    return value


def _folder(value: object) -> Path:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError
    try:
        return Path(value).expanduser()
    except RuntimeError as error:  # ~nobody
        raise ValueError(str(error)) from None


def _heartbeat(value: object) -> str:
    """YAML reads a bare `off` as false."""
    if value is False or value == "off":
        return "off"
    if value != "auto":
        raise ValueError
    return "auto"


def _size(value: object) -> int:
    plain = isinstance(value, int | str) and not isinstance(value, bool)
    match = _SIZE.fullmatch(str(value).lower()) if plain and len(str(value)) < 20 else None
    size = int(match[1]) * _UNITS[match[2]] if match else 0
    if not LEAST_BODY_BYTES <= size <= MOST_BODY_BYTES:
        raise ValueError
    return size


def _variables(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ValueError  # noqa: TRY004 - wrong data, not a wrong argument
    for name, template in value.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError
        if not isinstance(template, str) or not ("{url}" in template or template == "{key}"):
            raise ValueError
    return MappingProxyType(dict(value))


NAME = word(_NAME, "a name of lower-case letters, digits, '.', '_' and '-'")
PROFILE_NAME = word(_NAME, "the name of a profile")
HEADER_NAME = word(r"[a-z0-9-]{1,100}", "a header name in lower case")
QUERY_NAME = word(r"[A-Za-z0-9_-]{1,64}", "the name of a query parameter")
HOST_NAME = schema.checked("a host name without scheme and port", _host_name)
LISTED_HOST = schema.checked("HOST or *.DOMAIN, with or without :PORT", _listed_host)
LOOPBACK = schema.checked("a loopback address: 127.0.0.1, ::1 or localhost", _loopback)
BASE_URL = schema.Kind("an http or https URL of host, optional port and path only", _read_base_url)
SERVER_URL = schema.checked("an http or https URL of host and optional port only", _server_url)
"""A reverse listener passes paths on as they are, so its server's address has none."""
BUCKET_GLOB = schema.checked("a glob on PROVIDER/OWNER/FAMILY", _bucket_glob)
FOLDER = schema.checked("a folder that exists", _folder)
HEARTBEAT = schema.checked("off or auto", _heartbeat)
BODY_SIZE = schema.checked("a size from 1k to 4g, such as 128m", _size)
VARIABLES = schema.checked(
    "a mapping from variable names to texts with {url} in them, or {key}", _variables
)
PORT = schema.whole(1, 65_535)
