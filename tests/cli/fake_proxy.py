"""Stands for a proxy: the real control port over a hive that does nothing, and the state file.

`python fake_proxy.py PORT CA [die|hang]`; as a proxy started in the background it takes port 0 for a made-up one.
"""

import sys
import time

if __name__ == "__main__":  # before the slow imports: the tests wait for these
    if sys.argv[3:] == ["die"]:
        print("first line\nno such luck", file=sys.stderr)
        sys.exit(3)
    if sys.argv[3:] == ["hang"]:
        print("still thinking", flush=True)
        time.sleep(30)

import asyncio
import json
import os
import signal
from dataclasses import asdict

from hivemind_addon import rundir
from hivemind_addon.web.control import ControlServer

TOKEN = "fake-token"


class IdleHive:
    def __init__(self, port):
        self.port = port

    def snapshot(self):
        return {
            "version": "9.9",
            "uptime": 3725.0,
            "proxy": {"host": "127.0.0.1", "port": self.port},
            "buckets": [
                {"bucket": "anthropic/k1/opus", "limit": 4, "in_flight": 2, "waiting": 1234}
            ],
            "agents": {
                "lit-[red]7": {"calls": 5, "attempts": 9, "input_tokens": 1_000_000},
                "log": {"calls": 1},
            },
            "totals": {"calls": 6, "attempts": 9, "input_tokens": 1_000_000},
        }

    def resize(self, pattern, limit):
        if pattern == "[":
            raise ValueError("pattern '[': not usable")
        return ["anthropic/k1/opus"] if pattern.startswith("anthropic") else []


async def serve(port, ca_cert):
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    server = ControlServer(IdleHive(port), TOKEN, "127.0.0.1", 0)
    control = await server.start()
    info = rundir.this_process(
        proxy_host="127.0.0.1",
        proxy_port=port,
        control_url=f"http://127.0.0.1:{control}",
        token=TOKEN,
        ca_cert=ca_cert,
        version="9.9",
    )
    rundir.write_proxy(info)
    print(json.dumps(asdict(info)), flush=True)
    await stop.wait()
    rundir.remove_proxy(port)
    await server.stop()


if __name__ == "__main__":
    given, ca_cert, *_ = sys.argv[1:]
    asyncio.run(serve(int(given) or 10_000 + os.getpid() % 50_000, ca_cert))
