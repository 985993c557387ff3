"""`hivemind mock`: the mock provider. Its options are the fields of its own option class, so they cannot differ."""

from __future__ import annotations

import ast
import inspect
import itertools
import types
import typing
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable


def make_command(options_class: type[Any], run: Callable[[Any], object]) -> click.Command:
    """A command that builds `options_class` from its command line and passes it to `run`.

    A `ValueError` of the class (a value out of range) is a usage error.
    """

    def callback(**values: object) -> None:
        try:
            options = options_class(**values)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        try:
            run(options)
        except OSError as error:
            raise click.ClickException(f"the mock cannot run: {error}") from None

    return click.Command(
        "mock",
        callback=callback,
        params=[*_options(options_class)],
        help="Run a provider that imitates Anthropic and OpenAI, with limits and faults, until Ctrl-C.",
    )


def _options(options_class: type[Any]) -> list[click.Option]:
    kinds = typing.get_type_hints(options_class)
    docs = _field_docs(options_class)
    return [
        _option(field, kinds[field.name], docs.get(field.name, ""))
        for field in fields(options_class)
    ]


def _option(field: Field[Any], kind: object, text: str) -> click.Option:
    name = f"--{field.name.replace('_', '-')}"
    default = field.default if field.default_factory is MISSING else field.default_factory()
    required = default is MISSING
    text = str(field.metadata.get("help", text))
    if kind is bool:
        return click.Option(
            [f"{name}/--no-{name[2:]}", field.name], default=bool(default), help=text
        )
    many = typing.get_origin(kind) is tuple
    return click.Option(
        [name, field.name],
        type=_type(typing.get_args(kind)[0] if many else kind),
        default=None if required else default,
        required=required,
        multiple=many,
        show_default=default is not None and not required,
        help=text,
    )


def _type(kind: object) -> click.ParamType[Any] | type:
    """What click calls the type of a field.

    Raises:
        TypeError: for a type that a command line cannot give.
    """
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        named = [part for part in typing.get_args(kind) if part is not type(None)]
        if len(named) == 1:
            return _type(named[0])
    if typing.get_origin(kind) is typing.Literal:
        return click.Choice([str(choice) for choice in typing.get_args(kind)])
    if kind is Path:
        return click.Path(path_type=Path)
    if kind in (int, float, str):
        return typing.cast("type", kind)
    raise TypeError(f"no command line option for a field of type {kind!r}")


def _field_docs(options_class: type[Any]) -> dict[str, str]:
    """The docstrings under the fields, which Python itself does not keep."""
    try:
        tree = ast.parse(inspect.cleandoc(inspect.getsource(options_class)))
    except (OSError, SyntaxError):
        return {}
    docs = {}
    body = typing.cast("ast.ClassDef", tree.body[0]).body
    for field, after in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match after:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    docs[field.target.id] = " ".join(text.split())
    return docs


def _make() -> click.Command:
    from hivemind_addon.evaluation.mock.__main__ import run
    from hivemind_addon.evaluation.mock.options import MockOptions

    return make_command(MockOptions, run)


def __getattr__(name: str) -> click.Command:
    """`mock` is made when it is asked for: the provider itself is heavy to import."""
    if name == "mock":
        return _make()
    raise AttributeError(name)
