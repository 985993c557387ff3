"""What each agent did: calls, attempts, tokens. In memory; the figures behind `/api/status`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hivemind_addon.model import Usage

MOST_AGENTS = 4096
"""Agents kept apart. Beyond it the idle ones seen longest ago are added up in one row."""
OTHERS = "(others)"


@dataclass(slots=True)
class AgentAccount:
    """Totals of one agent since the proxy started."""

    calls: int = 0
    attempts: int = 0
    retries: int = 0
    errors: int = 0
    """Calls that ended without a usable answer: refused, given up, cut."""
    cancelled: int = 0
    in_flight: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens read from the provider's cache."""
    output_tokens: int = 0
    reasoning_tokens: int = 0
    """The part of the output that was thought and not said, where the provider tells."""
    estimated_tokens: int = 0
    """The part of all tokens that is our estimate."""

    def absorb(self, other: AgentAccount) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


class Ledger:
    """Accounts by agent name, most recently used last."""

    def __init__(self, most_agents: int = MOST_AGENTS) -> None:
        self._accounts: dict[str, AgentAccount] = {}
        self._most_agents = most_agents

    def account(self, agent: str) -> AgentAccount:
        account = self._accounts.pop(agent, None) or AgentAccount()
        self._accounts[agent] = account
        if len(self._accounts) > self._most_agents:
            self._fold_oldest(agent)
        return account

    def begin(self, agent: str) -> None:
        account = self.account(agent)
        account.calls += 1
        account.in_flight += 1

    def withdraw(self, agent: str) -> None:
        """Take back a `begin`."""
        account = self.account(agent)
        account.calls -= 1
        account.in_flight -= 1

    def end(
        self, agent: str, *, attempts: int, failed: bool, cancelled: bool, usage: Usage | None
    ) -> None:
        account = self.account(agent)
        account.in_flight -= 1
        account.attempts += attempts
        account.retries += max(0, attempts - 1)
        account.errors += failed
        account.cancelled += cancelled
        if usage is not None:
            account.input_tokens += usage.input_tokens + usage.cache_write_tokens
            account.cached_tokens += usage.cache_read_tokens
            account.output_tokens += usage.output_tokens
            account.reasoning_tokens += usage.reasoning_tokens
            account.estimated_tokens += usage.total_tokens if usage.estimated else 0

    def snapshot(self) -> dict[str, dict[str, int]]:
        return {agent: asdict(account) for agent, account in self._accounts.items()}

    def totals(self) -> dict[str, int]:
        total = AgentAccount()
        for account in self._accounts.values():
            total.absorb(account)
        return asdict(total)

    def _fold_oldest(self, newest: str) -> None:
        for agent, account in self._accounts.items():
            if agent not in (OTHERS, newest) and not account.in_flight:
                del self._accounts[agent]
                others = self._accounts.pop(OTHERS, None) or AgentAccount()
                others.absorb(account)
                self._accounts[OTHERS] = others
                return
