"""Certificates of a server that are renewed, damaged and lost while it runs."""

import ssl
from pathlib import Path

import pytest

from sinks.serving import tls
from tests.support.extender.asking import make_keys
from tests.support.server import handshake

FILES = {"cert": "server.pem", "key": "server.key", "client-ca": "ca.pem"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    make_keys(folder)
    return folder


@pytest.mark.parametrize("how", handshake.DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_files_that_cannot_be_used_leave_those_before_in_use_and_renewed_ones_are_taken_up(
    name: str, how: str, keys: Path, tmp_path: Path
) -> None:
    paths = {each: tmp_path / each for each in FILES}
    for each, file in FILES.items():
        paths[each].write_bytes((keys / file).read_bytes())
    identity = tls.Identity(tls.Files("dashboard", *paths.values()))
    handshake.damage(paths[name], how)
    for _ in range(2):
        complaint = identity.renew()
        assert complaint.startswith("dashboard tls ")
        assert str(paths[name]) in complaint
    assert handshake.shown(identity.context, keys, "client") == "server"
    with pytest.raises(ssl.SSLError):
        handshake.shown(identity.context, keys)
    for each, file in (("cert", "renewed.pem"), ("key", "renewed.key"), ("client-ca", "ca.pem")):
        handshake.repair(paths[each], (keys / file).read_bytes())
    assert identity.renew() == ""
    assert handshake.shown(identity.context, keys, "client") == "renewed"
