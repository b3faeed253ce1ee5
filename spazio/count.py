"""A number of things, as people read it."""


def of(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    Args:
        number: How many.
        noun: The word for one.
        plural: The word for several, if it is not that for one with an s.

    >>> of(1, "node"), of(0, "node"), of(1_200, "class", "classes")
    ('1 node', '0 nodes', '1200 classes')
    """
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"
