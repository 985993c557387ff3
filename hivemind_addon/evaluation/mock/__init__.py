"""A mock LLM provider: three dialects, limits, faults from a seed, and an honest count of what it saw.

It imports nothing of the proxy's own reading code, so what it reports is an independent judgement.
"""

from hivemind_addon.evaluation.mock.command import run
from hivemind_addon.evaluation.mock.options import MockOptions
from hivemind_addon.evaluation.mock.question import answer_text
from hivemind_addon.evaluation.mock.server import MockProvider

__all__ = ["MockOptions", "MockProvider", "answer_text", "run"]
