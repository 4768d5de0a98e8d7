"""The certificates are accepted by TLS, for the hosts that they name and no others."""

import socket
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from examples.flower.certificates import make_certificates

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "flower" / "certificates.py"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "keys"
    make_certificates(folder, hosts=["superlink.example", "127.0.0.1"], n_nodes=2)
    return folder


def handshake(folder: Path, authority: Path, host: str) -> str:
    """The version of TLS on which a server with the certificate and a client agree."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.create_default_context(cafile=authority)
    # As strict as later releases of Python are by default.
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            context.wrap_socket(theirs, server_side=True).close()
        except OSError:  # the client has refused
            theirs.close()

    server = threading.Thread(target=serve)
    server.start()
    try:
        with client.wrap_socket(ours, server_hostname=host) as connection:
            return str(connection.version())
    finally:
        ours.close()
        server.join()


def test_clients_trust_the_server_by_its_names(keys: Path) -> None:
    for host in ("superlink.example", "127.0.0.1"):
        assert handshake(keys, keys / "ca.crt", host) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(keys, keys / "ca.crt", "other.example")


def test_clients_of_another_authority_do_not(keys: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path / "other", hosts=["superlink.example"], n_nodes=0)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(keys, tmp_path / "other" / "ca.crt", "superlink.example")


def test_nodes_have_key_pairs_of_their_own(keys: Path) -> None:
    public = []
    for i in range(2):
        private = load_ssh_private_key((keys / f"node-{i}").read_bytes(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.curve.name == "secp384r1"
        stored = load_ssh_public_key((keys / f"node-{i}.pub").read_bytes())
        assert stored == private.public_key()
        public.append(stored)
    assert public[0] != public[1]


def test_private_keys_are_private(keys: Path) -> None:
    for name in ("ca.key", "server.key", "node-0", "node-1"):
        assert stat.S_IMODE((keys / name).stat().st_mode) == 0o600


def test_an_authority_is_not_overwritten(keys: Path) -> None:
    before = (keys / "ca.key").read_bytes()
    done = subprocess.run(
        [sys.executable, SCRIPT, keys, "--nodes", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "already has an authority" in done.stderr
    assert (keys / "ca.key").read_bytes() == before
