"""Minimises a function of one number between two ends, by Brent's method.

The steps are those of SciPy's `minimize_scalar(method="bounded")`, bit for bit: whoever imports that waits for all of
`scipy.optimize`, a tenth of the time in which a small file is fitted from the shell.
"""

import math
from collections.abc import Callable

_GOLDEN = 0.5 * (3.0 - math.sqrt(5.0))
_ROUNDING = math.sqrt(2.2e-16)
_MOST = 500


def minimum_between(function: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """The point where the function is least, to within the tolerance.

    >>> round(minimum_between(lambda x: (x - 2) ** 2, 0.0, 5.0, 1e-6), 5)
    2.0
    """
    best = second = third = low + _GOLDEN * (high - low)
    at_best = at_second = at_third = function(best)
    step = before = 0.0
    for _ in range(_MOST - 1):
        middle, near = 0.5 * (low + high), _ROUNDING * abs(best) + tolerance / 3.0
        if abs(best - middle) <= 2.0 * near - 0.5 * (high - low):
            break
        parabola = False
        if abs(before) > near:
            r = (best - second) * (at_best - at_third)
            q = (best - third) * (at_best - at_second)
            p = (best - third) * q - (best - second) * r
            q = 2.0 * (q - r)
            p, q = -p if q > 0.0 else p, abs(q)
            earlier, before = before, step
            parabola = abs(p) < abs(0.5 * q * earlier) and q * (low - best) < p < q * (high - best)
        if parabola:
            step = p / q
            if best + step - low < 2.0 * near or high - (best + step) < 2.0 * near:
                step = near if middle >= best else -near
        else:
            before = low - best if best >= middle else high - best
            step = _GOLDEN * before
        x = best + (max(abs(step), near) if step >= 0 else -max(abs(step), near))
        at_x = function(x)
        if at_x <= at_best:
            low, high = (best, high) if x >= best else (low, best)
            third, at_third, second, at_second, best, at_best = second, at_second, best, at_best, x, at_x
            continue
        low, high = (x, high) if x < best else (low, x)
        if at_x <= at_second or second == best:
            third, at_third, second, at_second = second, at_second, x, at_x
        elif at_x <= at_third or third in (best, second):
            third, at_third = x, at_x
    return best
