"""A certificate authority and a leaf for the mock's HTTPS side."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("localhost", "api.anthropic.com", "api.openai.com", "chatgpt.com")
ADDRESS = "127.0.0.1"
DAYS_VALID = 30


def server_context(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Use `ca.pem` and `leaf.pem` (key and certificate) of `folder`, or make them; answers also the CA's path.

    HTTP/1.1 is the only protocol offered: the server speaks no HTTP/2.

    Raises:
        OSError: if the folder cannot be written.
    """
    ca_path, leaf_path = folder / "ca.pem", folder / "leaf.pem"
    if not (ca_path.exists() and leaf_path.exists()):
        folder.mkdir(parents=True, exist_ok=True)
        _write_certificates(ca_path, leaf_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(leaf_path)
    context.set_alpn_protocols(["http/1.1"])
    return context, ca_path


def _write_certificates(ca_path: Path, leaf_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    ca_key, leaf_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "HiveMind mock CA")])

    def builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        is_ca = key is ca_key
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=is_ca,
            crl_sign=is_ca,
            encipher_only=False,
            decipher_only=False,
        )
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=DAYS_VALID))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(own, critical=False)
            .add_extension(signer, critical=False)
        )

    ca = builder(issuer, ca_key).sign(ca_key, hashes.SHA256())
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in NAMES]
    names.append(x509.IPAddress(ipaddress.ip_address(ADDRESS)))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    leaf = (
        builder(subject, leaf_key)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_bytes = leaf_key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with open(os.open(leaf_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(key_bytes + leaf.public_bytes(pem))
    ca_path.write_bytes(ca.public_bytes(pem))
