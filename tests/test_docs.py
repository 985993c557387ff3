"""The README says what the code does: every setting, addon, option and command is there."""

import re
from pathlib import Path

import click
import pytest

from hivemind_addon.cli.main import cli
from hivemind_addon.config import describe_settings

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
INIT = (ROOT / "hivemind_addon" / "__init__.py").read_text()


def settings_table() -> str:
    """The table as README has it: `python -m tests.test_docs` prints it."""
    lines = ["| setting | allowed | default | what it does |", "|---|---|---|---|"]
    for doc in describe_settings():
        cells = (f"`{doc.key}`", doc.allowed, doc.default, doc.help)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def test_every_setting_is_in_the_readme_as_the_code_has_it():
    section = re.search(r"<!-- settings -->\n(.*?)\n<!-- /settings -->", README, re.DOTALL)
    assert section is not None
    assert section[1] == settings_table()


def test_every_addon_is_in_readme_and_architecture():
    addons = re.findall(r"^ +(\w+)\(\),$", INIT, re.MULTILINE)
    assert len(addons) >= 9
    architecture = (ROOT / "docs" / "architecture.md").read_text()
    for addon in addons:
        assert f"| `{addon}` |" in README
        assert f"| `{addon}` |" in architecture


def test_every_mitmproxy_option_and_command_of_ours_is_in_the_readme():
    names = set()
    for path in (ROOT / "hivemind_addon" / "addons").glob("*.py"):
        text = path.read_text()
        names |= set(re.findall(r'"(hivemind_\w+)",', text))
        names |= set(re.findall(r'command\("(hivemind\.\w+)"\)', text))
    assert {"hivemind_config", "hivemind.resize"} <= names
    for name in names:
        assert name in README, name


@pytest.mark.parametrize("name", cli.list_commands(click.Context(cli)))
def test_every_command_is_in_the_readme(name):
    assert f"hivemind {name}" in README


if __name__ == "__main__":
    print(settings_table())
