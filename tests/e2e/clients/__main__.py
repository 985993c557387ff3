"""`python -m tests.e2e.clients NAME VERSION CALLS PARALLEL`: that many plain and that many streamed calls.

Prints one JSON object: the texts by kind and number, what failed, the HTTP versions of the answers.
"""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.clients.raw_http import RAW
from tests.e2e.clients.sdks import SDKS

CLIENTS = {**SDKS, **RAW}


async def run(name: str, version: str, calls: int, parallel: int) -> dict[str, object]:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(parallel))
    gate = asyncio.Semaphore(parallel)
    texts: dict[str, dict[str, str]] = {"plain": {}, "stream": {}}
    failed: list[str] = []
    versions: set[str] = set()

    async def one(number: int, stream: bool) -> None:
        kind = "stream" if stream else "plain"
        async with gate:
            try:
                texts[kind][str(number)] = await ask(f"{name} {number}", stream)
            except Exception as error:  # noqa: BLE001 - reported, whatever it is
                failed.append(f"{kind} {number}: {type(error).__name__}: {error}"[:500])

    async with CLIENTS[name](version, versions) as ask:
        await asyncio.gather(*(one(n, kind) for n in range(calls) for kind in (False, True)))
    return {"texts": texts, "failed": failed, "versions": sorted(versions)}


if __name__ == "__main__":
    answer = asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    print(json.dumps(answer))
