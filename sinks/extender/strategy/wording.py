"""Formats amounts for the sentences that explain why a node refuses a pod."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def amount(resource: str, value: float) -> str:
    """Return an amount with its unit.

    >>> amount("cpu", 1.5), amount("memory", 3 * 2**29), amount("pods", 2.0), amount("example.com/gpu", 1.0)
    ('1.5 cores', '1.5 GiB', '2', '1')
    """
    if resource == "cpu":
        return f"{value:.4g} cores"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        unit = 0
        while abs(value) >= 1024 and unit < len(_UNITS) - 1:
            value, unit = value / 1024, unit + 1
        return f"{value:.4g} {_UNITS[unit]}"
    return f"{value:.6g}"
