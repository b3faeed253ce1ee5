"""The section of the dashboard."""

from pydantic import Field

from schemas.sections.section import OptionalLocation, Port, Seconds, Section


class Dashboard(Section):
    """The dashboard: pages for a browser."""

    host: str = Field(
        "127.0.0.1",
        description="Address on which the dashboard listens. The default is loopback. Any other address needs "
        "`dashboard.token_file`, since the pages show all telemetry and query the history.",
    )
    port: Port = Field(
        8802,
        description="Port of the dashboard. 0: any free port. If the default is taken, `spazio up` takes a free one "
        "and prints it.",
    )
    token_file: OptionalLocation = Field(
        None,
        description="File with a secret of at least 16 characters. The browser opens `/?token=SECRET` once and keeps "
        "it in a cookie. Empty: no secret, which is possible on loopback only.",
    )
    allow_anonymous: bool = Field(
        False,
        description="Answer without a token also where other machines reach the address, to requests for `localhost` "
        "or `127.0.0.1`. Turn it on where the port is published on loopback only, as docker-compose.yml does.",
    )
    tls_cert: OptionalLocation = Field(
        None,
        description="File with the certificate chain of the server, as PEM. Empty: plain HTTP, which is for loopback, "
        "or behind a proxy that speaks HTTPS.",
    )
    tls_key: OptionalLocation = Field(None, description="File with the private key of `dashboard.tls_cert`, as PEM.")
    viewers_max: int = Field(
        32,
        ge=1,
        le=1000,
        description="Pages that may be open at once. Each takes a share of the updates. The server has six connections "
        "for each, as many as a browser opens, and 64 others; of more, those that are idle end.",
    )
    query_seconds: Seconds = Field(
        10,
        description="Seconds after which a query of the history is ended. Most answer within one second. One call of a "
        "function on a very large value runs to its end first.",
    )
    query_rows: int = Field(
        5000,
        ge=1,
        le=100_000,
        description="Rows of an answer that are sent to the browser; the page says if there are more.",
    )
