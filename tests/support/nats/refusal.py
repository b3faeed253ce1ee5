"""Refusals of the server's JSON interface, with the codes of the real one."""


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.error = {"code": code, "err_code": err_code, "description": description}


def no_stream() -> Refused:
    """Return the answer about a stream that does not exist."""
    return Refused(404, 10059, "stream not found")


def no_consumer() -> Refused:
    """Return the answer about a consumer that does not exist."""
    return Refused(404, 10014, "consumer not found")


def no_message() -> Refused:
    """Return the answer about a message that does not exist."""
    return Refused(404, 10037, "no message found")


def wrong_last_sequence(present: int) -> Refused:
    """Return the answer to a write that expected another sequence."""
    return Refused(400, 10071, f"wrong last sequence: {present}")


def not_json(reason: object) -> Refused:
    """Return the answer to a request that cannot be understood."""
    return Refused(400, 10025, f"invalid JSON: {reason}")
