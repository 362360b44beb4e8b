"""A private certificate authority, for servers that speak TLS in tests."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Certificate(NamedTuple):
    """Two files in PEM."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates. `ca` is the file that whoever trusts it names."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        built = self._built(self._name, self._key.public_key())
        # A certificate authority that says what it may be used for: newer OpenSSL insists.
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        signed = built.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def issue(self, host: str) -> Certificate:
        """A certificate for one DNS name."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        built = self._built(name, key.public_key())
        built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        signed = built.sign(self._key, hashes.SHA256())
        issued = Certificate(self._folder / f"{host}.pem", self._folder / f"{host}.key")
        issued.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return issued

    def _built(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
