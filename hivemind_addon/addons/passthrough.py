"""Only LLM hosts are touched (design D6): everything else behind the proxy is a raw tunnel.

Also the guards of the listening side: loopback only unless the user chose an address, and no upstream connection
before the gate.
"""

from __future__ import annotations

import logging

from mitmproxy import connection, ctx, http
from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers import TCPLayer
from mitmproxy.proxy.layers.http import HttpStream
from mitmproxy.proxy.layers.tls import parse_client_hello
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.proxy.server import ConnectionHandler
from mitmproxy.proxy.server_hooks import ServerConnectionHookData
from mitmproxy.utils import human

from hivemind_addon.addons import state
from hivemind_addon.addons.recovery import answer
from hivemind_addon.addresses import is_address, is_foreign_name, is_loopback, split_host
from hivemind_addon.upstream.layer import install
from hivemind_addon.upstream.stream import LayerServices

logger = logging.getLogger("hivemind.passthrough")


_connected: list[bool] = []
"""Not empty once listeners are followed: a reload of the script must not follow them twice."""


class Passthrough:
    """Chooses layers: our HTTP layer for LLM hosts, a tunnel for the rest."""

    def __init__(self) -> None:
        self._services = LayerServices(
            manages=manages,
            tunnels=tunnels,
            left=left,
            handler=handler,
            start=answer,
            is_foreign=is_foreign,
            max_body_bytes=lambda: state.hive().settings.max_body,
            wants_bodies=wants_bodies,
        )

    def load(self, loader: object) -> None:
        # With "eager", mitmproxy dials upstream at CONNECT, before any gate.
        ctx.options.update(connection_strategy="lazy")

    def running(self) -> None:
        server = ctx.master.addons.get("proxyserver")
        if not _connected:
            _connected.append(True)
            server.servers.changed.connect(note_listeners)
        note_listeners()
        if ctx.options.listen_host or all(
            ProxyMode.parse(mode).custom_listen_host for mode in ctx.options.mode
        ):
            return
        # mitmdump listens on every interface by default and scripts are loaded too late to change that:
        # take the listener down and up again.
        ctx.options.update(listen_host="127.0.0.1", server=False)
        ctx.options.update(server=True)

    def client_connected(self, client: connection.Client) -> None:
        if ctx.options.listen_host or getattr(client.proxy_mode, "custom_listen_host", None):
            return
        if not is_loopback(client.peername[0]):
            client.error = "HiveMind serves loopback only unless listen_host is set."
            logger.warning("client.refused peer=%s reason=not_loopback", client.peername[0])

    async def server_connect(self, data: ServerConnectionHookData) -> None:
        """As mitmproxy's own guard, which knows only three names of this machine."""
        assert data.server.address
        host, port, *_ = data.server.address
        if await state.is_ourselves(host, port):
            data.server.error = f"{human.format_address((host, port))} is this proxy itself."

    def next_layer(self, nextlayer: layer.NextLayer) -> None:
        if nextlayer.layer is not None:
            return
        if self._is_foreign_tls(nextlayer):
            nextlayer.layer = TCPLayer(nextlayer.context, ignore=True)
            return
        stock = ctx.master.addons.get("nextlayer")
        if stock is not None:
            stock.next_layer(nextlayer)
            nextlayer.layer = install(nextlayer.layer, self._services)

    def _is_foreign_tls(self, nextlayer: layer.NextLayer) -> bool:
        """CONNECT to a bare address: only the TLS server name tells whether it is an LLM host."""
        context = nextlayer.context
        inside_connect = bool(context.layers) and isinstance(context.layers[-1], HttpStream)
        if not inside_connect or not context.server.address:
            return False
        host, port, *_ = context.server.address
        if state.hive().profile_for(host, port) is not None:
            return False
        data = nextlayer.data_client()
        if not starts_like_tls_record(data):
            return False
        try:
            hello = parse_client_hello(data)
        except ValueError:
            return True
        # A hello in pieces cannot be waited for here; nobody calls an LLM by address that way.
        sni = hello.sni if hello is not None else None
        return not sni or state.hive().profile_for(sni, port) is None

    def client_disconnected(self, client: connection.Client) -> None:
        for call in list(state.hive().calls.values()):
            if call.client_id == client.id:
                call.cancel("client disconnected")
        close_forgotten(client, client)

    def server_disconnected(self, data: ServerConnectionHookData) -> None:
        close_forgotten(data.client, data.server)


def manages(flow: http.HTTPFlow) -> bool:
    """Does this request go through the pool? Asked with the final host."""
    if state.profile_of(flow) is None:
        return False
    # A WebSocket that was let through needs a connection of its own.
    return not state.is_websocket(flow)


def tunnels(host: str, port: int) -> bool:
    """Is CONNECT to this host a raw tunnel? A bare address on 443 is decided by its TLS server name."""
    if state.hive().profile_for(host, port) is not None:
        return False
    return not (port == 443 and is_address(host))


def is_foreign(client: connection.Client, host: str) -> bool:
    """Did a web page send this to a loopback listener under a name of its own (DNS rebinding)?

    Servers on this machine guard themselves by the Host header, which reverse mode replaces.
    """
    return is_loopback(client.sockname[0]) and is_foreign_name(split_host(host))


def left(flow: http.HTTPFlow, reason: str) -> None:
    """The client of this flow does not wait any more."""
    call = state.call_of(flow)
    if call is not None:
        call.cancel(reason)


def handler(client: connection.Client) -> ConnectionHandler | None:
    """The connection handler of a live client."""
    server = ctx.master.addons.get("proxyserver")
    return server.connections.get(client.id) if server is not None else None


def close_forgotten(client: connection.Client, ended: connection.Connection) -> None:
    """Close the socket of a connection whose handler has ended, if it is still open.

    A handler that is told to close while its peer goes on sending may be cancelled where it waits to hand the next
    bytes over; mitmproxy 12 then leaves without closing, and the peer hangs until the garbage collector comes by.
    """
    serving = handler(client)
    left_open = serving.transports.get(ended) if serving is not None else None
    if left_open is not None and left_open.writer is not None:
        left_open.writer.close()


def note_listeners() -> None:
    """Remember where the proxy listens: asking the sockets for every call would cost more than the guard is worth."""
    addresses = ctx.master.addons.get("proxyserver").listen_addrs()
    state.listening[:] = [(address[0], address[1]) for address in addresses]


def wants_bodies() -> bool:
    """Does a view, a dump or a HAR export want to see streamed bodies?"""
    options = ctx.options
    return bool(
        options.save_stream_file or options.hardump or ctx.master.addons.get("view") is not None
    )
