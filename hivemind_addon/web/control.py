"""The control port: a small JSON API on loopback. Reading is free, changing needs the token.

`GET /healthz`, `GET /api/status`, `POST /api/limit`, `GET` and `POST /api/local`. Every error is `{"error": {"message": ..., "field": ...}}`.
A web page that the user visits can make the browser call loopback, also under a name of its own (DNS rebinding);
so the Host header must be a loopback one, and a change needs a token that no page can read.
"""

from __future__ import annotations

import errno
import hmac
import json
import logging
from typing import TYPE_CHECKING, Any, Protocol

from aiohttp import web

from hivemind_addon.addresses import is_loopback, split_host
from hivemind_addon.kinds import base_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

logger = logging.getLogger("hivemind.control")

MAX_BODY_BYTES = 64 * 1024
HIGHEST_LIMIT = 10_000
"""The range of `admission.max_concurrency` in the settings file."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class HiveSource(Protocol):
    """What the control port shows and changes."""

    def snapshot(self) -> dict[str, Any]:
        """Plain JSON values: version, uptime, proxy, buckets, agents, totals."""
        ...

    def resize(self, pattern: str, limit: int) -> list[str]:
        """Set the concurrency limit of every bucket that matches a glob; answers their names.

        Raises:
            ValueError: if pattern or limit cannot be used.
        """
        ...


class Listeners(Protocol):
    """Reverse listeners for the user's own model servers."""

    def servers(self) -> list[dict[str, Any]]:
        """What a listener can be opened for: profile, target, configured, detect, variables, url."""
        ...

    async def open(self, profile: str, target: str) -> str:
        """The base URL of a listener for this server; opened if need be.

        Raises:
            ValueError: if profile or target cannot be used.
            OSError: if no listener can be opened.
        """
        ...


class ApiError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"message": message} | ({"field": field} if field else {})


class ControlServer:
    """Serves one hive. `host` must be loopback; port 0 takes a free one.

    Raises:
        ValueError: if `host` is no loopback address or `token` is empty.
    """

    def __init__(
        self,
        source: HiveSource,
        token: str,
        host: str,
        port: int,
        listeners: Listeners | None = None,
    ) -> None:
        if not is_loopback(host):
            raise ValueError(f"control port host: got {host!r}, allowed: a loopback address")
        if not token:
            raise ValueError("control port token: got '', allowed: a secret text")
        self._source = source
        self._listeners = listeners
        self._token = token.encode()
        self._host = host
        self._port = port
        self._version = str(source.snapshot()["version"])
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen; answers the port in use, which is another one if the wanted one is taken.

        Raises:
            OSError: if no port at all can be had on this host.
        """
        runner = web.AppRunner(
            self._application(), access_log=None, handle_signals=False, shutdown_timeout=1.0
        )
        await runner.setup()
        try:
            await self._listen(runner)
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        port = int(runner.addresses[0][1])
        if self._port not in (0, port):
            logger.warning("control.port_taken wanted=%d used=%d", self._port, port)
        return port

    async def stop(self) -> None:
        """Stop listening and end open requests. Without effect if not started."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _listen(self, runner: web.AppRunner) -> None:
        site = web.TCPSite(runner, self._host, self._port)
        try:
            await site.start()
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES) or self._port == 0:
                raise
            await site.stop()
            await web.TCPSite(runner, self._host, 0).start()

    def _application(self) -> web.Application:
        app = web.Application(middlewares=[_guard, _check_host], client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/api/status", self._status)
        app.router.add_post("/api/limit", self._limit)
        if self._listeners is not None:
            app.router.add_get("/api/local", self._local_servers)
            app.router.add_post("/api/local", self._open_local)
        app.on_response_prepare.append(_add_headers)
        return app

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "version": self._version})

    async def _status(self, _request: web.Request) -> web.Response:
        return web.json_response(self._source.snapshot())

    async def _limit(self, request: web.Request) -> web.Response:
        self._authorise(request)
        body = await _read_object(request, {"bucket", "limit"})
        bucket, limit = body.get("bucket"), body.get("limit")
        if not isinstance(bucket, str) or not bucket.strip():
            raise _bad("bucket", bucket, "a bucket name or a glob such as 'anthropic/*'")
        if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= HIGHEST_LIMIT:
            raise _bad("limit", limit, f"a whole number from 1 to {HIGHEST_LIMIT}")
        try:
            changed = self._source.resize(bucket, limit)
        except ValueError as error:
            raise ApiError(400, str(error)) from None
        return web.json_response({"bucket": bucket, "limit": limit, "changed": changed})

    async def _local_servers(self, _request: web.Request) -> web.Response:
        assert self._listeners is not None
        return web.json_response({"servers": self._listeners.servers()})

    async def _open_local(self, request: web.Request) -> web.Response:
        assert self._listeners is not None
        self._authorise(request)
        body = await _read_object(request, {"profile", "target"})
        profile, target = body.get("profile"), body.get("target")
        if not isinstance(profile, str) or not profile:
            raise _bad("profile", profile, "the name of a profile")
        if not isinstance(target, str) or not _is_base_url(target):
            raise _bad("target", target, "an http or https URL of host and port")
        try:
            url = await self._listeners.open(profile, target)
        except ValueError as error:
            raise ApiError(400, str(error)) from None
        except OSError as error:
            raise ApiError(503, str(error)) from None
        return web.json_response({"profile": profile, "target": target, "url": url})

    def _authorise(self, request: web.Request) -> None:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        sent = given.strip().encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(sent, self._token) or scheme.lower() != "bearer":
            raise ApiError(401, "this needs 'Authorization: Bearer TOKEN' with this proxy's token")


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error into our JSON form."""
    try:
        return await handler(request)
    except ApiError as error:
        response = web.json_response({"error": error.body}, status=error.status)
    except web.HTTPException as error:
        response = web.json_response({"error": {"message": error.reason}}, status=error.status)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
    except Exception:
        logger.exception("control.failed path=%s", request.path)
        response = web.json_response({"error": {"message": "internal error"}}, status=500)
    if response.status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="hivemind"'
    return response


@web.middleware
async def _check_host(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse foreign host names (DNS rebinding), whatever is asked."""
    if not is_loopback(split_host(request.headers.get("Host", ""))):
        raise ApiError(403, "the Host header must name a loopback address", "Host")
    return await handler(request)


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = "hivemind"


async def _read_object(request: web.Request, known: set[str]) -> dict[str, object]:
    """The JSON object of a request with no other keys than `known`."""
    if request.content_type != "application/json":
        raise ApiError(415, "the body must be JSON: 'Content-Type: application/json'")
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise _bad("body", body, "a JSON object")
    for key in body.keys() - known:
        raise _bad(key, body[key], "only " + " and ".join(sorted(known)))
    return body


def _bad(field: str, value: object, allowed: str) -> ApiError:
    shown = json.dumps(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return ApiError(400, f"{field}: got {shown}, allowed: {allowed}", field)


def _is_base_url(text: str) -> bool:
    try:
        base_url(text)
    except ValueError:
        return False
    return True
