"""Reads YAML files key by key with clear errors: where, which value, what is allowed.

Every error is one line, `FILE: KEY: got VALUE, allowed: WHAT`; all are collected, to be mended in one go. A repeated
key, of which PyYAML takes the last in silence, is one too. A `Kind` says what a value may be, a `Place` where it
stands, a `Section` is a mapping that is read key by key.
"""

from __future__ import annotations

import contextlib
import difflib
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, cast

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

MOST_LINES = 10
_SHOWN_CHARS = 80
_TAG = "tag:yaml.org,2002:"
_OPEN = object()
type _Built = dict[yaml.Node, object]


class SettingsError(ValueError):
    """Settings that cannot be used. The text has one line per error, at most `MOST_LINES`."""


class Refused(Exception):
    """A value was refused; the reason is among the problems already. Never leaves the loaders."""


class Problems:
    """Collects errors, of one file or of several."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def raise_if_any(self) -> None:
        """Raise a `SettingsError` with what was collected."""
        if rest := self.lines[MOST_LINES:]:
            more = f"{rest[0].split(': ')[0]}: and {len(rest) + 1} more errors"
            self.lines[MOST_LINES - 1 :] = [more]
        if self.lines:
            raise SettingsError("\n".join(self.lines))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: file and dotted key."""

    problems: Problems
    file: str
    key: str = ""

    def child(self, name: str) -> Place:
        name = plain(name) or "''"
        return Place(self.problems, self.file, f"{self.key}.{name}" if self.key else name)

    def item(self, index: int) -> Place:
        return Place(self.problems, self.file, f"{self.key}[{index}]")

    def complain(self, text: str) -> Refused:
        """Note an error; the answer is for `raise`, where nothing sensible can follow."""
        self.problems.lines.append(f"{self.file}: {self.key}{self.key and ': '}{text}")
        return Refused()

    def refuse(self, value: object, allowed: str) -> Refused:
        return self.complain(f"got {show(value)}, allowed: {allowed}")


@dataclass(frozen=True, slots=True)
class Kind[T]:
    """What a value may be: in words, and as a function that answers it or raises `Refused`."""

    allowed: str
    read: Callable[[Place, object], T]


def setting[T](default: T, kind: Kind[T], help: str = "", unset: str = "") -> T:
    """A dataclass field that is read from the key of its name. `unset` says what no value means."""
    return field(default=default, metadata={"kind": kind, "help": help, "unset": unset})


class Section:
    """A mapping that is read key by key; what nobody asked for is an error at `close`."""

    def __init__(self, tree: Mapping[str, object], place: Place) -> None:
        self.place = place
        self._tree = tree
        self._known: list[str] = []

    def take[T](self, name: str, kind: Kind[T], default: T, *, required: bool = False) -> T:
        """Read one key. Where it is missing, null or refused, the default stands in."""
        self._known.append(name)
        value = self._tree.get(name)
        place = self.place.child(name)
        if value is None:
            if required:
                place.complain(f"got nothing, allowed: {kind.allowed}")
            return default
        with contextlib.suppress(Refused):
            return kind.read(place, value)
        return default

    def fill[T](self, cls: type[T], *required: str) -> T:
        """Read a dataclass whose fields were made by `setting`."""
        taken = {}
        for each in fields(cast("Any", cls)):
            if kind := each.metadata.get("kind"):
                must = each.name in required
                taken[each.name] = self.take(each.name, kind, each.default, required=must)
        return cls(**taken)

    def close(self) -> None:
        """Complain about keys that nobody read."""
        for name in self._tree:
            if name not in self._known:
                near = difflib.get_close_matches(plain(name), self._known, 1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                text = f"unknown key{hint}, allowed: {', '.join(self._known)}"
                self.place.child(name).complain(text)


def read_file[T](path: Path, problems: Problems, build: Callable[[Section], T]) -> T:
    """Read a YAML file; raises `Refused` if anything is wrong, and `problems` says what."""
    place, before = Place(problems, plain(str(path), 400)), len(problems.lines)
    tree = _load(path, place)
    if len(problems.lines) > before:
        raise Refused
    return section_of(build).read(place, {} if tree is None else tree)


def checked[T](allowed: str, parse: Callable[[Any], T]) -> Kind[T]:
    """A kind from a function that raises ValueError; its text, if any, is told in brackets."""

    def read(place: Place, value: object) -> T:
        try:
            return parse(value)
        except ValueError as error:
            reason = f" ({plain(str(error))})" if str(error) else ""
            raise place.refuse(value, allowed + reason) from None

    return Kind(allowed, read)


def section_of[T](build: Callable[[Section], T]) -> Kind[T]:
    """A mapping with keys of ours; `build` reads them."""

    def read(place: Place, value: object) -> T:
        if not isinstance(value, dict):
            raise place.refuse(value, "a mapping with keys")
        before = len(place.problems.lines)
        section = Section(value, place)
        result = build(section)
        section.close()
        if len(place.problems.lines) > before:
            raise Refused
        return result

    return Kind("a mapping with keys", read)


def group[T](cls: type[T]) -> Kind[T]:
    """A mapping that becomes a dataclass whose fields were made by `setting`."""
    return section_of(lambda section: section.fill(cls))


def list_of[T](item: Kind[T]) -> Kind[tuple[T, ...]]:
    """A list whose items are all of one kind."""
    allowed = f"a list, each {item.allowed}"

    def read(place: Place, value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise place.refuse(value, allowed)
        return tuple(read_all(item.read, [(place.item(i), each) for i, each in enumerate(value)]))

    return Kind(allowed, read)


def _scalar[T](allowed: str, types: Any, test: Callable[[Any], bool], make: type[T]) -> Kind[T]:
    def parse(value: object) -> T:
        stray = isinstance(value, bool) and types is not bool  # to Python, true is 1
        if stray or not isinstance(value, types) or not test(value):
            raise ValueError
        return make(value)  # type: ignore[call-arg]

    return checked(allowed, parse)


def number(low: float, high: float) -> Kind[float]:
    """A number from `low` to `high`; NaN is none."""
    allowed = f"a number from {low:g} to {high:g}"
    return _scalar(allowed, int | float, lambda v: low <= v <= high, float)


def whole(low: int, high: int) -> Kind[int]:
    """A whole number from `low` to `high`."""
    allowed = f"a whole number from {low} to {high}"
    return _scalar(allowed, int, lambda v: low <= v <= high, int)


def one_of(choices: Collection[str]) -> Kind[str]:
    """One of several words."""
    return _scalar(f"one of {', '.join(choices)}", str, lambda v: v in choices, str)


BOOLEAN = _scalar("true or false", bool, lambda _: True, bool)


def show(value: object) -> str:
    """A value as one short line, in YAML's spelling where it has its own; quick, whatever it holds."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 256:  # Python may refuse to print it
        return f"a number of {value.bit_length()} bits"
    return plain(repr(value[: 2 * _SHOWN_CHARS] if isinstance(value, str) else value))


def plain(text: str, most: int = _SHOWN_CHARS) -> str:
    """Text without line breaks and control characters, cut to `most` characters."""
    text = text if len(text) <= most else text[: most - 3] + "..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def read_all[V, T](read: Callable[[Place, V], T], pairs: Collection[tuple[Place, V]]) -> list[T]:
    """Read every value, so that all errors are found, and only then refuse."""
    result: list[T] = []
    for place, value in pairs:
        with contextlib.suppress(Refused):
            result.append(read(place, value))
    if len(result) < len(pairs):
        raise Refused
    return result


def _load(path: Path, place: Place) -> object:
    try:
        node = yaml.compose(path.read_bytes().decode("utf-8-sig"), yaml.SafeLoader)
        return None if node is None else _build(node, place, {})
    except OSError as error:
        text = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        text = f"not UTF-8 text (byte {error.start})"
    except yaml.MarkedYAMLError as error:
        mark, what = error.problem_mark, ", ".join(filter(None, (error.context, error.problem)))
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        text = f"{where}not valid YAML: {plain(what, 200)}"
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        deep = isinstance(error, RecursionError)
        what = "nested too deeply" if deep else getattr(error, "reason", str(error))
        text = f"not valid YAML: {plain(what)}"
    raise place.complain(text)


def _build(node: yaml.Node, place: Place, built: _Built) -> object:
    """A node as a plain value. `built` keeps what aliases name, or a small file could make a huge tree."""
    if built.get(node) is _OPEN:
        place.complain("got a value that contains itself, allowed: plain values")
        return None
    if node in built:
        return built[node]
    value: object = None
    built[node] = _OPEN
    match node.tag.removeprefix(_TAG), node:
        case "seq", yaml.SequenceNode():
            value = [_build(each, place.item(i), built) for i, each in enumerate(node.value)]
        case "map", yaml.MappingNode():
            value = _build_mapping(node, place, built)
        case "str" | "timestamp" | "merge" | "value", yaml.ScalarNode():
            value = node.value  # what looks like a date or a merge key is text here
        case (("null" | "bool" | "int" | "float" as kind), yaml.ScalarNode()):
            try:
                value = yaml.constructor.SafeConstructor().construct_object(node)
            except (ValueError, KeyError, IndexError):
                place.refuse(node.value, f"what YAML reads as {kind}")
        case _:
            place.complain(f"got {plain(node.tag)}, allowed: plain YAML values")
    built[node] = value
    return value


def _build_mapping(node: yaml.MappingNode, place: Place, built: _Built) -> dict[str, object]:
    """Keys are taken as they are written: `on` is a word here, and 529 needs no quotes."""
    result: dict[str, object] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            place.complain("got a list or mapping as a key, allowed: text")
        elif key.value in result:
            again = f"got this key twice (line {key.start_mark.line + 1}), allowed: once"
            place.child(key.value).complain(again)
        else:
            result[key.value] = _build(value, place.child(key.value), built)
    return result
