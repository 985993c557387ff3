"""HiveMind: mitmproxy addons that keep fleets of LLM agents alive behind one HTTPS_PROXY.

This file is what `mitmdump -s hivemind_addon/__init__.py` loads. mitmproxy runs it outside its package, so its
parent folder goes onto the path first; as a package it is imported a second time, and then does nothing.
"""

import sys
from pathlib import Path

if __name__.startswith("__mitmproxy_script__"):
    _parent = str(Path(__file__).resolve().parent.parent)
    if _parent not in sys.path:
        sys.path.insert(0, _parent)  # the tree that was named wins over an installed copy

    from hivemind_addon.addons.accounting import BudgetAccounting
    from hivemind_addon.addons.admission import Admission
    from hivemind_addon.addons.chain import Chain
    from hivemind_addon.addons.configuration import Configuration
    from hivemind_addon.addons.control import Control
    from hivemind_addon.addons.detection import ProviderDetection
    from hivemind_addon.addons.identity import Identity
    from hivemind_addon.addons.listeners import LocalListeners
    from hivemind_addon.addons.passthrough import Passthrough
    from hivemind_addon.addons.recovery import RetryReplay
    from hivemind_addon.addons.telemetry import Telemetry

    addons = [
        Chain(
            Configuration(),
            Passthrough(),
            Identity(),
            ProviderDetection(),
            BudgetAccounting(),
            Admission(),
            RetryReplay(),
            Telemetry(),
            LocalListeners(),
            Control(),
        )
    ]
