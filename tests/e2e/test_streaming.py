"""Streams: nothing is held back, nothing is changed, nobody slows anybody down."""

import gzip
import itertools
import time
import zlib

import pytest

from tests.e2e import raw
from tests.e2e.harness import eventually, running_mock, running_proxy, upstreams

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_an_event_reaches_the_client_before_the_next_is_produced(tmp_path, encoding):
    with (
        running_mock(seed=1, compress="true" if encoding == "gzip" else "false") as mock,
        running_proxy(tmp_path, upstreams(mock.http_url)) as proxy,
    ):
        reader, writer = await raw.connect(proxy)
        writer.write(
            raw.request_bytes(
                raw.message(stream=True),
                headers={
                    "x-mock-event-interval": "0.1",
                    "x-mock-tokens": "15",
                    "accept-encoding": encoding,
                },
            )
        )
        _, headers = await raw.read_head(reader)
        assert headers.get("content-encoding", "identity") == encoding
        inflate = zlib.decompressobj(47)
        arrivals: list[float] = []
        text = b""
        while b"message_stop" not in text:
            size = int(await reader.readuntil(b"\r\n"), 16)
            chunk = (await reader.readexactly(size + 2))[:-2]
            text += inflate.decompress(chunk) if encoding == "gzip" else chunk
            seen = text.count(b"content_block_delta\n")
            arrivals += [time.monotonic()] * (seen - len(arrivals))
        writer.transport.abort()
    gap = [later - earlier for earlier, later in itertools.pairwise(arrivals)]
    # Produced every 100 ms; had one been held until the next came, two would arrive together.
    assert len(arrivals) == 15
    assert min(gap[1:]) > 0.03, gap


@pytest.mark.parametrize("version", ["h1", "h2"])
@pytest.mark.timeout(180)
async def test_a_client_that_stops_reading_costs_no_memory_and_slows_nobody(tmp_path, version):
    megabytes = 200
    with (
        running_mock(seed=1) as mock,
        running_proxy(tmp_path, upstreams(mock.http_url)) as proxy,
    ):
        await raw.exchange(proxy, raw.request_bytes(raw.message()))

        async def other_stream() -> float:
            started = time.monotonic()
            reader, writer = await raw.connect(proxy)
            writer.write(
                raw.request_bytes(
                    raw.message(stream=True),
                    headers={"x-mock-event-interval": "0.01", "x-mock-tokens": "50"},
                )
            )
            _, headers = await raw.read_head(reader)
            body = await raw.read_body(reader, headers)
            assert b"message_stop" in body
            writer.transport.abort()
            return time.monotonic() - started

        alone = min([await other_stream() for _ in range(3)])
        before = proxy.rss_bytes()
        size = {"x-mock-bytes": str(megabytes * 2**20), "x-mock-tokens": "2000"}
        if version == "h1":
            reader, writer = await raw.connect(proxy)
            writer.write(raw.request_bytes(raw.message(stream=True), headers=size))
            await raw.read_head(reader)
            writer.transport.pause_reading()
            leave = writer.transport.abort
        else:
            client = await raw.H2Client.open(proxy, auto_window=False)
            stream_id = client.send(
                raw.message(stream=True), **{k.replace("-", "_"): v for k, v in size.items()}
            )
            await eventually(lambda: stream_id in client.status, 10)
            leave = client.close
        peak = before
        beside = []
        for _ in range(6):
            beside.append(await other_stream())
            peak = max(peak, proxy.rss_bytes())
        assert mock.stats()["in_flight"] >= 1, "the stalled stream is still there"
        leave()
        await eventually(lambda: mock.stats()["in_flight"] == 0, 3)
        await eventually(lambda: proxy.in_flight() == 0, 3)
    assert peak - before <= 16 * 2**20, f"{(peak - before) / 2**20:.1f} MiB"
    assert min(beside) < alone * 1.5 + 0.1


@pytest.mark.timeout(120)
async def test_200_mb_stream_arrives_whole(tmp_path):
    megabytes = 200
    with (
        running_mock(seed=1) as mock,
        running_proxy(tmp_path, upstreams(mock.http_url)) as proxy,
    ):
        before = proxy.rss_bytes()
        reader, writer = await raw.connect(proxy)
        writer.write(
            raw.request_bytes(
                raw.message(stream=True),
                headers={"x-mock-bytes": str(megabytes * 2**20), "x-mock-tokens": "2000"},
            )
        )
        _, _headers = await raw.read_head(reader)
        total, tail, peak = 0, b"", 0
        while not tail.endswith(b"0\r\n\r\n"):
            data = await reader.read(2**18)
            assert data, "cut"
            total += len(data)
            tail = (tail + data)[-2000:]
            peak = max(peak, proxy.rss_bytes())
        writer.transport.abort()
    assert total >= megabytes * 2**20
    assert b"message_stop" in tail
    assert peak - before <= 32 * 2**20


@pytest.mark.parametrize("fault", ["fault_cut", "fault_fin_cut"])
@pytest.mark.parametrize("version", ["h1", "h2"])
async def test_a_cut_never_looks_like_an_end(tmp_path, fault, version):
    with (
        running_mock(seed=1) as mock,
        running_proxy(tmp_path, upstreams(mock.http_url)) as proxy,
    ):
        if version == "h1":
            reader, writer = await raw.connect(proxy)
            writer.write(
                raw.request_bytes(
                    raw.message(stream=True),
                    headers={
                        "x-mock-fault": fault,
                        "x-mock-event-interval": "0.01",
                        "x-mock-tokens": "20",
                    },
                )
            )
            _, _headers = await raw.read_head(reader)
            received = await reader.read(-1)
            assert not received.endswith(b"0\r\n\r\n")
            writer.transport.abort()
        else:
            client = await raw.H2Client.open(proxy)
            stream_id = client.send(
                raw.message(stream=True),
                x_mock_fault=fault,
                x_mock_event_interval="0.01",
                x_mock_tokens="20",
            )
            received = await client.finished(stream_id)
            assert stream_id in client.reset
            client.close()
        assert b"content_block_delta" in received
        assert b"message_stop" not in received
        if fault == "fault_fin_cut":
            assert b"event: error" in received
        totals = proxy.status()["totals"]
    assert totals["errors"] == 1
    assert totals["in_flight"] == 0


async def test_every_content_encoding_passes_byte_for_byte(tmp_path):
    with (
        running_mock(seed=1, compress="true") as mock,
        running_proxy(tmp_path, upstreams(mock.http_url)) as proxy,
    ):
        plain = b""
        for encoding in ("identity", "gzip", "br", "zstd"):
            for stream in (False, True):
                status, headers, body = await raw.exchange(
                    proxy,
                    raw.request_bytes(
                        raw.message(stream=stream), headers={"accept-encoding": encoding}
                    ),
                )
                assert status == 200
                assert headers.get("content-encoding", "identity") == encoding
                if encoding == "gzip":
                    body = gzip.decompress(body)
                if encoding == "identity" and stream:
                    plain = body
                if encoding == "gzip" and stream:
                    assert body.count(b"content_block_delta") == plain.count(b"content_block_delta")
        totals = proxy.status()["totals"]
        usage = mock.stats()["usage"]
    assert totals["output_tokens"] == usage["output"]
    assert totals["estimated_tokens"] == 0
