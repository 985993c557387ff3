"""Reads YAML mappings with clear errors: what, where, which value, what is allowed.

Every error is one line: `FILE: KEY: got VALUE, allowed: WHAT`. All errors of a file are collected, so that a user
mends them in one go.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

MOST_ERRORS = 10


class SettingsError(ValueError):
    """Settings that cannot be used. The text has one line per error."""


class _Loader(yaml.SafeLoader):
    """YAML without silent surprises: a repeated key is an error, not the last one's win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(
                    None, None, f"a key must be plain text, got {key!r}", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Mapping[str, object]:
    """The top-level mapping of a YAML file; an empty file is an empty mapping.

    Raises:
        SettingsError: if the file cannot be read or is no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 text (byte {error.start})") from None
    try:
        tree = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SettingsError(f"{path}:{where}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError, TypeError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SettingsError(f"{path}: not valid YAML: {first}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SettingsError(f"{path}: got {_show(tree)}, allowed: a mapping of settings")
    return tree


class Problems:
    """Collects the errors of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: list[str] = []

    def add(self, key: str, value: object, allowed: str) -> None:
        self.lines.append(f"{self.file}: {key}: got {_show(value)}, allowed: {allowed}")

    def raise_if_any(self) -> None:
        if self.lines:
            more = len(self.lines) - MOST_ERRORS
            shown = self.lines[:MOST_ERRORS]
            if more > 0:
                shown.append(f"{self.file}: and {more} more")
            raise SettingsError("\n".join(shown))


class Section:
    """A mapping that is read key by key; what nobody asked for is an error at `close`."""

    def __init__(self, value: object, key: str, problems: Problems) -> None:
        self.problems = problems
        self._key = key
        self._known: list[str] = []
        self._tree: Mapping[object, object] = {}
        if isinstance(value, dict):
            self._tree = value
        elif value is not None:
            problems.add(key or "(top level)", value, "a mapping")

    def take[T](self, name: str, read: Callable[[Section, str, object], T], default: T) -> T:
        """Read one key with a reader from this module; a missing or null key is the default."""
        self._known.append(name)
        value = self._tree.get(name)
        return default if value is None else read(self, name, value)

    def section(self, name: str) -> Section:
        self._known.append(name)
        return Section(self._tree.get(name), self.path(name), self.problems)

    def sections(self, name: str) -> list[Section]:
        """A list of mappings."""
        self._known.append(name)
        value = self._tree.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            self.bad(name, value, "a list of mappings")
            return []
        return [
            Section(item, f"{self.path(name)}[{index}]", self.problems)
            for index, item in enumerate(value)
        ]

    def items(self) -> list[tuple[object, object]]:
        """All pairs, for mappings with keys of the user's own."""
        self._known += [str(key) for key in self._tree]
        return list(self._tree.items())

    def has(self, name: str) -> bool:
        return self._tree.get(name) is not None

    def path(self, name: str) -> str:
        return f"{self._key}.{name}" if self._key else name

    def bad(self, name: str, value: object, allowed: str) -> None:
        self.problems.add(self.path(name), value, allowed)

    def require(self, name: str) -> None:
        if not self.has(name):
            self.problems.lines.append(f"{self.problems.file}: {self.path(name)}: missing")

    def close(self) -> None:
        """Complain about keys that nobody read."""
        for key in self._tree:
            if key in self._known:
                continue
            near = difflib.get_close_matches(str(key), self._known, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            allowed = ", ".join(self._known)
            name = self.path(str(key))
            self.problems.lines.append(
                f"{self.problems.file}: {name}: unknown key{hint}, allowed: {allowed}"
            )


def number(
    low: float, high: float, *, whole: bool = False
) -> Callable[[Section, str, object], Any]:
    """A reader of numbers from `low` to `high`; a boolean is no number."""
    kind = "a whole number" if whole else "a number"
    allowed = f"{kind} from {_plain(low)} to {_plain(high)}"

    def read(section: Section, name: str, value: object) -> Any:
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not fits or not math.isfinite(value) or not low <= value <= high:  # type: ignore[arg-type,operator]
            section.bad(name, value, allowed)
            return low
        return value

    return read


def boolean(section: Section, name: str, value: object) -> bool:
    """A reader of true and false."""
    if not isinstance(value, bool):
        section.bad(name, value, "true or false")
        return False
    return value


def text(section: Section, name: str, value: object) -> str:
    """A reader of non-empty text."""
    if not isinstance(value, str) or not value.strip():
        section.bad(name, value, "text")
        return ""
    return value


def one_of(choices: Collection[str]) -> Callable[[Section, str, object], str]:
    """A reader of one of several words."""
    allowed = ", ".join(choices)

    def read(section: Section, name: str, value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            section.bad(name, value, allowed)
            return next(iter(choices))
        return value

    return read


def list_of[T](
    read_item: Callable[[Section, str, object], T],
) -> Callable[[Section, str, object], tuple[T, ...]]:
    """A reader of lists."""

    def read(section: Section, name: str, value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            section.bad(name, value, "a list")
            return ()
        return tuple(read_item(section, f"{name}[{i}]", item) for i, item in enumerate(value))

    return read


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _show(value: object) -> str:
    shown = repr(value).replace("\n", "\\n")
    return shown if len(shown) <= 80 else shown[:77] + "..."
