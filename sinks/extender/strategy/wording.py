"""Amounts as people read them, for sentences that say why a pod cannot go somewhere."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def amount(resource: str, value: float) -> str:
    """Return an amount with its unit.

    >>> amount("cpu", 1.5), amount("memory", 3 * 2**29), amount("pods", 2.0), amount("example.com/gpu", 1.0)
    ('1.5 cores', '1.5 GiB', '2', '1')
    """
    if resource == "cpu":
        return f"{value:.4g} cores"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        place = 0
        while abs(value) >= 1024 and place < len(_UNITS) - 1:
            value, place = value / 1024, place + 1
        return f"{value:.4g} {_UNITS[place]}"
    return f"{value:.6g}"
