"""Who may open the dashboard: programs of this machine, or a browser with the token.

On loopback a web page of a stranger could still ask through the reader's browser, by a name that resolves to 127.0.0.1.
So the name in a request must be one of loopback's. A request that changes or costs something needs a content type that
browsers send across sites only after asking.
"""

import hmac

from aiohttp import web

from bus.access import local
from schemas.sections.dashboard import Dashboard
from schemas.settings import SettingsError
from sinks.serving import tls

COOKIE = "spazio-dashboard"
_PURPOSE = b"spazio dashboard cookie"
_LEAST_CHARACTERS = 16


class Access:
    """The rules of one dashboard."""

    def __init__(self, settings: Dashboard) -> None:
        """Read the token and the certificate; `identity` is the certificate, None: plain HTTP.

        Raises:
            SettingsError: A file cannot be used, or other machines reach the address and there is no token.
        """
        self._token = _token(settings)
        self.identity = tls.identity(tls.Files("dashboard", settings.tls_cert, settings.tls_key, None))
        if self._token is None and not settings.allow_anonymous and not local.is_loopback(settings.host):
            raise SettingsError(
                [
                    f"dashboard host: anyone who reaches {settings.host} could read all telemetry; name a file with a "
                    "secret with --dashboard-token-file, or set --dashboard-allow-anonymous true where only this "
                    "machine reaches the port"
                ]
            )
        # The cookie is not the token, so that a page's storage does not hold the secret. A restart does not change it,
        # so open pages go on.
        self._cookie = None if self._token is None else hmac.digest(self._token, _PURPOSE, "sha256").hex()

    def refusal(self, request: web.Request) -> web.StreamResponse | None:
        """Return the answer to a request that is not let in; None: it is.

        Args:
            request: The request; `?token=` in its address is exchanged for a cookie.
        """
        if self._token is None:
            name = local.host(request.host)
            return (
                None
                if local.is_loopback(name)
                else _text(403, f"{name or 'a request without a host'} is not this machine")
            )
        given = request.query.get("token")
        if given is not None and hmac.compare_digest(_bytes(given), self._token):
            answer = web.Response(status=303, headers={"Location": request.path})
            assert self._cookie is not None
            secure = self.identity is not None
            # Lax, so that links to pages can be followed from other sites: a GET changes nothing, and others need JSON.
            answer.set_cookie(COOKIE, self._cookie, httponly=True, samesite="Lax", secure=secure, path="/")
            return answer
        if hmac.compare_digest(_bytes(request.cookies.get(COOKIE, "")), (self._cookie or "").encode()):
            return None
        return _text(401, "open /?token=SECRET once, with the secret of dashboard.token_file")


def _token(settings: Dashboard) -> bytes | None:
    if settings.token_file is None:
        return None
    try:
        token = settings.token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError([f"dashboard token-file: {settings.token_file} cannot be read: {error}"]) from error
    if len(token) < _LEAST_CHARACTERS:
        raise SettingsError(
            [
                f"dashboard token-file: {settings.token_file} holds {len(token)} characters, at least "
                f"{_LEAST_CHARACTERS} are needed: head -c 24 /dev/urandom | base64 > {settings.token_file}"
            ]
        )
    return token.encode()


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, body=_bytes(f"{text}\n"), content_type="text/plain", charset="utf-8")


def _bytes(text: str) -> bytes:
    """Return text of a request in UTF-8; bytes of it that were none come back as they were sent."""
    return text.encode(errors="surrogateescape")
