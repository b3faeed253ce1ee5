"""One algorithm per file, pure numpy: no clock, no I/O, no logging; one impure file runs them."""
