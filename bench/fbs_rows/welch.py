"""Mean, deviation, and Welch's t-test, as the paper's Table 2 and Figure 5 have them."""

import math
import statistics
from dataclasses import dataclass

# Terms of the continued fraction, of which a tenth is enough.
TERMS_MAX = 1000
PRECISION = 1e-12


@dataclass(frozen=True)
class Sampled:
    """Mean and standard deviation of a sample."""

    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, values):
        values = list(values)
        return cls(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0, len(values))


@dataclass(frozen=True)
class Compared:
    """Two samples by Welch's t-test: p, and the 95 % interval of the difference of their means (second minus first)."""

    p: float
    low: float
    high: float


def welch(first, second):
    """Compares two samples; returns None where they are too small for it."""
    one, other = Sampled.of(first), Sampled.of(second)
    if min(one.count, other.count) < 2:
        return None
    parts = [sample.deviation**2 / sample.count for sample in (one, other)]
    difference = other.mean - one.mean
    if not any(parts):
        return Compared(1.0 if difference == 0 else 0.0, difference, difference)
    error = math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(
        part**2 / (sample.count - 1) for part, sample in zip(parts, (one, other), strict=True)
    )
    reach = student_quantile(0.95, freedom) * error
    return Compared(two_sided(difference / error, freedom), difference - reach, difference + reach)


def two_sided(t, freedom):
    """Returns the probability of a value of Student's distribution at least as far from zero as `t`."""
    return incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def student_quantile(inner, freedom):
    """Returns the value within which Student's distribution lies, on both sides of zero, with probability `inner`."""
    low, high = 0.0, 1.0
    while 1 - two_sided(high, freedom) < inner:
        high *= 2
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - two_sided(middle, freedom) < inner else (low, middle)
    return high


def incomplete_beta(x, a, b):
    """Returns the regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    # The fraction converges quickly on one side of the mean; the function is symmetric.
    if x < (a + 1) / (a + b + 2):
        return front * beta_fraction(x, a, b) / a
    return 1 - front * beta_fraction(1 - x, b, a) / b


def beta_fraction(x, a, b):
    """Returns the continued fraction of the incomplete beta function, by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    found = d
    for m in range(1, TERMS_MAX):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            found *= c * d
        if abs(c * d - 1) < PRECISION:
            break
    return found
