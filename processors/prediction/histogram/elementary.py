"""Powers and logarithms to the last bit as Go computes them.

A bucket's start and a sample's weight come out of three functions, and libraries round their last bit differently:
numpy's power agrees with Go's in few of the starts, its exp2 in nine of ten weights. Where histograms are compared
with Koordinator's or VPA's, or continue them, that one bit decides on which side of an edge a value falls. These are
the algorithms behind Go's: multiplication by squares for integer powers, and for exp and log the reductions and
polynomials of FreeBSD's msun (e_exp.c, e_log.c), which Go took over. On arm64 Go fuses operations, and differs itself.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# ln 2 in two parts, the first with zeros at its end: multiples of it are exact.
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
# Of x (exp(x) + 1) / (exp(x) - 1) in powers of x^2 (e_exp.c), lowest first.
_EXP = (
    1.66666666666666657415e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)
# Of log((1 + s) / (1 - s)) in powers of s^2 (e_log.c): odd ones and even ones, lowest first.
_LOG_ODD = (6.666666666666735130e-01, 2.857142874366239149e-01, 1.818357216161805012e-01, 1.479819860511658591e-01)
_LOG_EVEN = (3.999999999940941908e-01, 2.222219843214978396e-01, 1.531383769920937332e-01)


def power(base: float, exponents: NDArray[np.integer]) -> Array:
    """Return base ** n for each integer n >= 0: (n,), for a base above 0.

    The base is a fraction in 0.5..1 and a power of two; only the fraction is multiplied, and kept above 0.5.
    """
    square, doublings = (part.item() for part in np.frexp(base))
    fraction, shift = np.ones(len(exponents)), np.zeros(len(exponents), dtype=np.int64)
    for bit in range(int(exponents.max(initial=0)).bit_length()):
        chosen = (exponents >> bit) & 1 == 1
        fraction[chosen] *= square
        shift[chosen] += doublings
        square, doublings = square * square, doublings * 2
        if square < 0.5:
            square, doublings = square * 2, doublings - 1
    return _scaled(fraction, shift)


def exp2(exponents: ArrayLike) -> Array:
    """Return 2 ** x, any shape: 0 far below, infinite far above, NaN of NaN."""
    x = np.minimum(np.maximum(np.asarray(exponents, dtype=np.float64), -1100.0), 1100.0)
    nearest = np.trunc(x + np.copysign(0.5, x))
    rest = x - nearest
    high, low = rest * _LN2_HIGH, -rest * _LN2_LOW
    r = high - low
    square = r * r
    c = r - square * _polynomial(square, _EXP)
    fraction = 1.0 - ((low - (r * c) / (2.0 - c)) - high)
    return np.where(x < -1074.0, 0.0, _scaled(fraction, np.where(np.isnan(nearest), 0.0, nearest)))


def log(values: ArrayLike) -> Array:
    """Return the natural logarithm, any shape, of finite values above 0."""
    fraction, exponent = np.frexp(np.asarray(values, dtype=np.float64))
    small = fraction < np.sqrt(0.5)
    f = np.where(small, fraction * 2.0, fraction) - 1.0
    k = exponent - small.astype(np.float64)
    s = f / (2.0 + f)
    square = s * s
    fourth = square * square
    series = square * _polynomial(fourth, _LOG_ODD) + fourth * _polynomial(fourth, _LOG_EVEN)
    half = 0.5 * f * f
    logarithm: Array = k * _LN2_HIGH - ((half - (s * (half + series) + k * _LN2_LOW)) - f)
    return logarithm


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    total = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = coefficient + x * total
    return total


def _scaled(fraction: Array, exponent: NDArray[np.generic]) -> Array:
    with np.errstate(over="ignore", under="ignore"):
        scaled: Array = np.ldexp(fraction, exponent.astype(np.int64))
    return scaled
