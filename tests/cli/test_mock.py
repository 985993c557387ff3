"""Options made of a dataclass."""

from dataclasses import dataclass, field, fields
from typing import Literal

import pytest
from click.testing import CliRunner

from hivemind_addon.cli.mock import make_command
from hivemind_addon.cli.mock import mock as mock_command
from hivemind_addon.evaluation.mock.options import MockOptions


@dataclass(kw_only=True)
class Options:
    host: str = "127.0.0.1"
    rpm: int | None = None
    """Calls per
    window."""
    share: float = 0.5
    mode: Literal["strict", "refill"] = "strict"
    compress: bool = True
    models: tuple[str, ...] = field(default=("a",), metadata={"help": "Names."})

    def __post_init__(self):
        if not 0 <= self.share <= 1:
            raise ValueError(f"share: got {self.share}, allowed: 0 to 1")


def parse(*words):
    seen: list[Options] = []
    result = CliRunner().invoke(make_command(Options, seen.append), words)
    return seen, result


def test_without_arguments_the_defaults_hold():
    assert parse()[0] == [Options()]


def test_every_kind_of_field_is_read():
    words = "--host h --rpm 5 --share 0.25 --mode refill --no-compress --models x --models y"
    assert parse(*words.split())[0] == [
        Options(host="h", rpm=5, share=0.25, mode="refill", compress=False, models=("x", "y"))
    ]


def test_help_is_the_text_under_the_field():
    text = parse("--help")[1].output
    assert "Calls per window." in text
    assert "Names." in text
    assert "[strict|refill]" in text


def test_a_value_out_of_range_is_a_usage_error():
    seen, result = parse("--share", "3")
    assert (seen, result.exit_code) == ([], 2)
    assert "share: got 3.0, allowed: 0 to 1" in result.output


def test_a_taken_port_is_one_error():
    def run(_options):
        raise OSError(98, "Address already in use")

    result = CliRunner().invoke(make_command(Options, run), [])
    assert result.exit_code == 1
    assert "Address already in use" in result.output


def test_a_field_that_no_command_line_can_give_is_a_mistake_of_ours():
    @dataclass
    class Odd:
        table: dict[str, int] = field(default_factory=dict)

    with pytest.raises(TypeError, match="dict"):
        make_command(Odd, print)


def test_the_mock_has_an_option_for_each_of_its_settings():
    assert [option.name for option in mock_command.params] == [f.name for f in fields(MockOptions)]
