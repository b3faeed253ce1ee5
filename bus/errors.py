"""The errors of the bus under names of its own, so that no other package imports the client library.

Every error of the client is a `BusError`, and so are the errors of the bus: `lease.Lost`, `consumer.StreamRecreated`,
`setback.SetBack`, `api.Refused`.
"""

import nats.errors
from nats.js.errors import NotFoundError

BusError = nats.errors.Error
NotFound = NotFoundError

# Exceptions of a request to the server: it was refused, the connection broke, or no answer came in time.
REQUEST_FAILED: tuple[type[Exception], ...] = (BusError, TimeoutError)
