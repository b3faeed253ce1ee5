"""Settings from TOML, environment and command line, and web configurations."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas import settings as all_settings
from schemas.settings import SettingsError
from spazio.service.web import config
from tests.fuzz.session import Run, Target

_TOML = b"""
prefix = "test"
[nats]
url = "nats://127.0.0.1:4222"
port = 4222
[extender]
strategies = "availability=2+weighted"
profiles = ["batch:most_allocated"]
shape = ["0=0", "100=10"]
factors = ["fit=2"]
[estimate]
pod_cores = 0.1
[log]
level = "info"
"""
_FLAGS = {"nats_port": "0", "extender_profiles": "a:peak,b:weighted", "predict_model": "max", "data_dir": "/tmp/x"}
_WEB = b"""
tls_server_config: {cert_file: a.pem, key_file: b.pem, client_auth_type: RequireAndVerifyClientCert,
  client_ca_file: c.pem, min_version: TLS13}
basic_auth_users:
  a: &h $2y$10$abcdefghijklmnopqrstuuQ2OUnm/5R0HYkVSEBgqBxuMiJhWbVxO
  b: *h
"""
_WORDS = (
    b"tls_server_config:",
    b"basic_auth_users:",
    b"[nats]\n",
    b"[[a]]",
    b'"""',
    b"1979-05-27T07:32:00Z",
    b"a.b=1\n",
)


def settings() -> Target:
    """Return the target of settings: a TOML file, or flags and variables as a JSON object."""

    @contextmanager
    def opened() -> Iterator[Run]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "spazio.toml"

            def once(data: bytes) -> None:
                if not data.startswith(b"{"):
                    path.write_bytes(data)
                    made = all_settings.load({}, config=path, environ={})
                    assert all_settings.load({}, environ=all_settings.environment(made)) == made
                    return
                try:
                    given = {str(name): str(value) for name, value in json.loads(data).items()}
                except (ValueError, RecursionError):
                    return
                environ = {all_settings.ENV + name.upper(): value for name, value in given.items()}
                all_settings.unknown_environment(environ)
                for flags, variables in ((given, {}), ({}, environ)):
                    all_settings.load(flags, environ=variables)

            yield once

    every = {all_settings.option_name(section, field): "1" for section, field, _ in all_settings.options()}
    seeds = [
        _TOML,
        json.dumps(_FLAGS).encode(),
        *(json.dumps({name: value}).encode() for name, value in _FLAGS.items()),
    ]
    words = [*_WORDS, *(f'"{name}": '.encode() for name in every), *(f"{name} = ".encode() for name in every)]
    return Target("settings", seeds, opened, (SettingsError,), words)


def web() -> Target:
    """Return the target of web configurations; certificates are not read."""

    @contextmanager
    def opened() -> Iterator[Run]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "web.yml"

            def once(data: bytes) -> None:
                path.write_bytes(data)
                config.read(path)

            yield once

    return Target(
        "web", [_WEB, b"tls_server_config: {cert_file: a, key_file: b}\n", b""], opened, (SettingsError,), _WORDS
    )
