"""Boot ids in a form that compares: every comparison of boot ids uses what `cut` returns."""

DIGITS = 8  # of the 32 of a kernel's boot id; a boot must differ from the one before it
_WHOLE = 32  # characters at least: a kernel's id is a UUID


def cut(boot: str) -> str:
    """Return the part of a boot id that is compared; `spazio edge` sends only this part.

    An id shorter than the kernel's is not cut: in foreign traces the first digits need not differ.

    >>> cut("3f2504e0-4f89-41d3-9a0c-0305e82c3301"), cut("3f2504e0"), cut("recorded-2")
    ('3f2504e0', '3f2504e0', 'recorded-2')
    """
    return boot[:DIGITS] if len(boot) >= _WHOLE else boot
