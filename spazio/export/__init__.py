"""`spazio export`: the history, or a part of it, as files for other programs."""
