"""Certificates and keys for a federation: `python certificates.py FOLDER --nodes 5 --host NAME`.

Writes to FOLDER:

- `ca.crt`, `ca.key`: an authority of your own. Nodes and users need `ca.crt`. Keep `ca.key`
  offline.
- `server.crt`, `server.key`: for the SuperLink, valid for the hosts that are given.
- `node-0`, `node-0.pub`, …: a key pair per SuperNode (ECDSA on P-384). The private key should be
  made on the node's own machine (`ssh-keygen -t ecdsa -b 384`); the operator needs only the public
  one.
"""

import argparse
import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PRIVATE = 0o600


def make_certificates(
    folder: Path, *, hosts: Sequence[str], n_nodes: int, n_days: int = 365
) -> None:
    """Write the authority, the server's certificate for `hosts`, and `n_nodes` key pairs.

    Refuses a folder that has an authority: nodes that trust it would no longer know the server.
    """
    if (folder / "ca.key").exists():
        raise FileExistsError(f"{folder} already has an authority; choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    ca_key, server_key = new_key(), new_key()
    ca_name, server_name = named("Holdfast federation"), named(hosts[0])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    authority = (
        unsigned(ca_name, ca_name, ca_key, n_days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(key_id(ca_key), critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    server = (
        unsigned(server_name, ca_name, server_key, n_days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(alternative_names(hosts)), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(key_id(server_key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA384())
    )
    write_private(folder / "ca.key", pem(ca_key))
    write_private(folder / "server.key", pem(server_key))
    (folder / "ca.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    (folder / "server.crt").write_bytes(server.public_bytes(serialization.Encoding.PEM))
    for i in range(n_nodes):
        make_node_key(folder / f"node-{i}")


def make_node_key(path: Path) -> None:
    """Write a key pair for node authentication: `path`, and `path` with `.pub` behind it."""
    key = new_key()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    write_private(path, private)
    path.with_name(f"{path.name}.pub").write_bytes(public + b"\n")


def new_key() -> ec.EllipticCurvePrivateKey:
    """A new private key on P-384."""
    return ec.generate_private_key(ec.SECP384R1())


def named(name: str) -> x509.Name:
    """The name of who holds or issues a certificate."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def key_id(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    """The identifier of a key, by which a chain of certificates is put together."""
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def alternative_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """The hosts as TLS compares them: addresses as addresses, names as names."""
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def unsigned(
    holder: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, n_days: int
) -> x509.CertificateBuilder:
    """A certificate without extensions and signature."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(holder)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks differ: valid from a little before now.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=n_days))
    )


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as text, without a passphrase."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, from the first moment on."""
    path.touch(mode=PRIVATE, exist_ok=False)
    path.write_bytes(content)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", action="append", help="name or address of the SuperLink")
    parser.add_argument("--nodes", type=int, default=0, help="key pairs to make")
    parser.add_argument("--days", type=int, default=365, help="until the certificates expire")
    arguments = parser.parse_args()
    hosts = arguments.host or ["localhost", "127.0.0.1"]
    make_certificates(arguments.folder, hosts=hosts, n_nodes=arguments.nodes, n_days=arguments.days)
    print(f"wrote certificates for {', '.join(hosts)} to {arguments.folder}")


if __name__ == "__main__":
    main()
