"""Settings: `hivemind.yaml`, our options, and mitmproxy's own options for the upstream side."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Optional

from mitmproxy import ctx, exceptions
from mitmproxy.addonmanager import Loader

from hivemind_addon.addons import state
from hivemind_addon.config import load_all
from hivemind_addon.runtime import spawn
from hivemind_addon.schema import SettingsError
from hivemind_addon.upstream.pool import TlsSettings

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


class Configuration:
    """Loads the settings and hands them to the hive."""

    def load(self, loader: Loader) -> None:
        loader.add_option(
            "hivemind_config",
            Optional[str],  # type: ignore[arg-type]  # noqa: UP045 - mitmproxy knows this spelling
            None,
            "HiveMind's settings file (hivemind.yaml). Without one, defaults serve.",
        )

    def configure(self, updated: set[str]) -> None:
        if "hivemind_config" in updated:
            path = ctx.options.hivemind_config
            try:
                settings, profiles = load_all(Path(path).expanduser() if path else None)
            except SettingsError as error:
                # Raised from a script's configure an OptionsError prints a traceback; a logged error is one
                # clear line, and at start-up makes mitmproxy exit with 1.
                for line in str(error).splitlines():
                    logger.error(line)  # noqa: TRY400 - the line says it all
            else:
                state.hive().apply(settings, profiles)
                logging.getLogger("hivemind").setLevel(settings.log.level.upper())
        if _TLS_OPTIONS & updated:
            self._configure_upstream()

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
