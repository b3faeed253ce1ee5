"""`deploy/certificates.sh` makes certificates that servers and clients take, and others are refused."""

import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.support.server.handshake import shake

SCRIPT = Path(__file__).parents[4] / "deploy" / "certificates.sh"
NAMES = ("spazio-extender.spazio.svc", "127.0.0.1", "::1")


# As the configuration that OpenSSL has of its own, and one extension by which it is seen.
CONFIGURATION = """\
[req]
distinguished_name = subject
x509_extensions = v3_ca
[subject]
[v3_ca]
subjectKeyIdentifier = hash
basicConstraints = critical, CA:true
nsComment = theirs
"""


def make(folder: Path, *names: str, **environ: str) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, **environ}
    return subprocess.run([SCRIPT, folder, *names], env=own, capture_output=True, text=True, check=False, timeout=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    made = tmp_path_factory.mktemp("tls") / "certificates"
    assert make(made, *NAMES).returncode == 0
    return made


def contexts(folder: Path, *, presented: bool) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.crt"))
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    client = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    if presented:
        client.load_cert_chain(folder / "client.crt", folder / "client.key")
    return server, client


@pytest.mark.parametrize("name", NAMES)
def test_server_and_client_accept_each_other_under_every_name(folder: Path, name: str) -> None:
    shake(*contexts(folder, presented=True), name)


def test_another_name_and_a_client_without_a_certificate_are_refused(folder: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(*contexts(folder, presented=True), "elsewhere.example")
    with pytest.raises(ssl.SSLError, match="CERTIFICATE"):
        shake(*contexts(folder, presented=False), NAMES[0])


def test_a_server_cannot_present_the_certificate_of_a_client(folder: Path) -> None:
    server, client = contexts(folder, presented=True)
    server.load_cert_chain(folder / "client.crt", folder / "client.key")
    with pytest.raises(ssl.SSLError):
        shake(server, client, NAMES[0])


def test_files_are_their_owners_and_stay_when_it_runs_again(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(before) == {"ca.crt", "ca.key", "server.crt", "server.key", "client.crt", "client.key"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder, *folder.iterdir()))
    assert make(folder, "another.example").returncode == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_authority_has_each_extension_once_whatever_openssl_is_configured_to_add(tmp_path: Path) -> None:
    (tmp_path / "openssl.cnf").write_text(CONFIGURATION)
    done = make(tmp_path / "made", *NAMES, OPENSSL_CONF=str(tmp_path / "openssl.cnf"))
    assert done.returncode == 0, done.stderr
    show = ["openssl", "x509", "-in", str(tmp_path / "made" / "ca.crt"), "-noout", "-text"]
    text = subprocess.run(show, capture_output=True, text=True, check=True).stdout
    assert [text.count(name) for name in ("Basic Constraints", "Key Usage", "Subject Key Identifier")] == [1, 1, 1]
    assert "theirs" not in text
    shake(*contexts(tmp_path / "made", presented=True), NAMES[0])


def test_without_names_it_says_how_it_is_used(tmp_path: Path) -> None:
    done = make(tmp_path / "certificates")
    assert (done.returncode, done.stderr.startswith("usage: ")) == (2, True)
