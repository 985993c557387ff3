"""Settings: `hivemind.yaml`, our options, and mitmproxy's own options for the upstream side."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Optional

from mitmproxy import ctx, exceptions
from mitmproxy.addonmanager import Loader

from hivemind_addon import memory
from hivemind_addon.addons import state
from hivemind_addon.config import Settings, load_all
from hivemind_addon.profile_set import ProfileSet
from hivemind_addon.reload import (
    Signature,
    changes,
    profile_changes,
    signature,
    waits_for_restart,
)
from hivemind_addon.runtime import spawn
from hivemind_addon.schema import SettingsError
from hivemind_addon.upstream.tls import TlsSettings

logger = logging.getLogger("hivemind.config")

_TLS_OPTIONS = {
    "ssl_insecure",
    "ssl_verify_upstream_trusted_ca",
    "ssl_verify_upstream_trusted_confdir",
    "client_certs",
    "tls_version_server_min",
    "tls_version_server_max",
    "ciphers_server",
    "connect_addr",
}
_TLS_VERSIONS = {
    "UNBOUNDED": None,
    "SSL3": ssl.TLSVersion.SSLv3,
    "TLS1": ssl.TLSVersion.TLSv1,
    "TLS1_1": ssl.TLSVersion.TLSv1_1,
    "TLS1_2": ssl.TLSVersion.TLSv1_2,
    "TLS1_3": ssl.TLSVersion.TLSv1_3,
}


POLL = 0.4
"""Seconds between looks at the files; a change is read once it has been the same for two looks."""

_loaded: list[Path | None] = []
"""The settings file that was read; None among it is `no file`."""

_watching: list[asyncio.Task[None]] = []
"""The task that watches the files; it survives a reload of the script."""


class Configuration:
    """Loads the settings and hands them to the hive, again whenever a file changes."""

    def load(self, loader: Loader) -> None:
        loader.add_option(
            "hivemind_config",
            Optional[str],  # type: ignore[arg-type]  # noqa: UP045 - mitmproxy knows this spelling
            None,
            "HiveMind's settings file (hivemind.yaml). Without one, defaults serve.",
        )

    def running(self) -> None:
        if not _watching:
            _watching.append(spawn(_watch(), name="watch settings"))
            memory.settle()  # everything is loaded by now

    def configure(self, updated: set[str]) -> None:
        # At a reload of the script every option counts as updated; the file itself is watched.
        if "hivemind_config" in updated and _loaded != [_path()]:
            self._read_settings()
        if _TLS_OPTIONS & updated:
            self._configure_upstream()

    def _read_settings(self) -> None:
        _loaded[:] = [_path()]
        try:
            settings, profiles = load_all(_path())
        except SettingsError as error:
            # Raised from a script's configure an OptionsError prints a traceback; a logged error is one
            # clear line, and at start-up makes mitmproxy exit with 1.
            _complain(error)
        else:
            _apply(settings, profiles)

    def _configure_upstream(self) -> None:
        options = ctx.options
        tls = TlsSettings(
            insecure=options.ssl_insecure,
            trusted_ca=options.ssl_verify_upstream_trusted_ca,
            trusted_confdir=options.ssl_verify_upstream_trusted_confdir,
            client_certs=options.client_certs,
            minimum=_TLS_VERSIONS[options.tls_version_server_min]
            or ssl.TLSVersion.MINIMUM_SUPPORTED,
            maximum=_TLS_VERSIONS[options.tls_version_server_max]
            or ssl.TLSVersion.MAXIMUM_SUPPORTED,
            ciphers=options.ciphers_server,
        )
        for path in (tls.trusted_ca, tls.trusted_confdir):
            if path and not Path(path).expanduser().exists():
                raise exceptions.OptionsError(
                    f"trusted certificates: {path}: no such file or folder"
                )
        _ = spawn(
            state.hive().pool.configure(tls, options.connect_addr), name="configure upstream pool"
        )


def _path() -> Path | None:
    path = ctx.options.hivemind_config
    return Path(path).expanduser() if path else None


def _apply(settings: Settings, profiles: ProfileSet) -> None:
    state.hive().apply(settings, profiles)
    logging.getLogger("hivemind").setLevel(settings.log.level.upper())


def _complain(error: SettingsError) -> None:
    for line in str(error).splitlines():
        logger.error(line)


async def _watch() -> None:
    """Apply what changes on disk. A reading that is refused leaves everything as it was."""
    clock = state.hive().clock
    applied = last = _signature()
    while True:
        await clock.sleep(POLL)
        seen = _signature()
        settled, last = seen == last, seen
        if seen == applied or not settled:
            continue  # nothing new, or somebody is still writing
        applied = seen
        try:
            # Reading twenty files takes a fifth of a second of pure Python: not on the loop.
            settings, profiles = await asyncio.to_thread(load_all, _path())
        except SettingsError as error:
            _complain(error)
            logger.error("settings.refused: the old ones stay")  # noqa: TRY400 - said above
        else:
            _reload(settings, profiles)
            applied = last = _signature()  # the new settings may name another folder


def _signature() -> Signature:
    return signature(_path(), state.hive().settings.profiles)


def _reload(settings: Settings, profiles: ProfileSet) -> None:
    hive = state.hive()
    names = changes(hive.settings, settings)
    names += [f"profile {n}" for n in profile_changes(hive.profiles.profiles, profiles.profiles)]
    _apply(settings, profiles)
    later = [name for name in names if waits_for_restart(name)]
    logger.info(
        "settings.reloaded changed=%s%s",
        ",".join(names) or "nothing",
        f" (at the next start: {', '.join(later)})" if later else "",
    )
