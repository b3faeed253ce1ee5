"""How boots are told apart: whoever compares boot ids compares what `cut` returns."""

DIGITS = 8  # of the 32 of a kernel's boot id; a boot must differ from the one before it
_WHOLE = 32  # characters at least: a kernel's id is a UUID


def cut(boot: str) -> str:
    """Return a boot id as boots are compared: `spazio edge` sends no more of it than that.

    An id shorter than the kernel's is not cut: in traces of others the first digits need not differ.

    >>> cut("3f2504e0-4f89-41d3-9a0c-0305e82c3301"), cut("3f2504e0"), cut("recorded-2")
    ('3f2504e0', '3f2504e0', 'recorded-2')
    """
    return boot[:DIGITS] if len(boot) >= _WHOLE else boot
