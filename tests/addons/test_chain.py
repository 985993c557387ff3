"""Our addons as one: same order, sync and async, options and commands of the members."""

from mitmproxy import command
from mitmproxy.test import taddons

from hivemind_addon.addons.chain import Chain


class First:
    def __init__(self, seen):
        self.seen = seen

    def load(self, loader):
        loader.add_option("chain_test", str, "x", "An option of a member.")

    def request(self, flow):
        self.seen.append("first")

    def done(self):
        return "task"


class Second:
    def __init__(self, seen):
        self.seen = seen

    async def request(self, flow):
        self.seen.append("second")

    def response(self, flow):
        self.seen.append("response")

    def done(self):
        return None

    @command.command("chain.test")  # type: ignore[untyped-decorator]
    def command(self) -> str:
        """A command of a member."""
        return "called"


async def test_members_are_called_in_order_whether_they_wait_or_not():
    seen: list[str] = []
    chain = Chain(First(seen), Second(seen))
    await chain.request(None)  # type: ignore[attr-defined]
    chain.response(None)  # type: ignore[attr-defined]
    assert seen == ["first", "second", "response"]


def test_only_hooks_that_a_member_has_are_there():
    chain = Chain(First([]))
    assert hasattr(chain, "request")
    assert not hasattr(chain, "response")
    assert not hasattr(chain, "update")


def test_what_a_member_answers_reaches_mitmproxy():
    assert Chain(First([]), Second([])).done() == "task"  # type: ignore[attr-defined]


async def test_options_and_commands_of_members_are_known():
    with taddons.context() as context:
        context.master.addons.add(Chain(First([]), Second([])))
        assert context.options.chain_test == "x"
        assert context.master.commands.call("chain.test") == "called"
