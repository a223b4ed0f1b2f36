"""What chance allows a count of independent events to be, exactly."""

from __future__ import annotations

from fractions import Fraction
from typing import Any


def count_interval(trials: int, chance: Any, error: Any) -> tuple[int, int]:
    """Counts [low, high] outside of which a binomial count falls with probability at most `error`, exactly.

    Each tail holds at most half of it; the tails are summed in integers, so nothing is approximated.
    """
    rate, budget = Fraction(chance), Fraction(error) / 2
    if not 0 <= rate <= 1 or not 0 < budget <= Fraction(1, 2) or trials < 0:
        raise ValueError(
            f"trials {trials}, chance {chance!r}, error {error!r}: expected a binomial and an error in (0, 1]"
        )
    a, b, n = rate.numerator, rate.denominator - rate.numerator, rate.denominator
    limit = budget * n**trials

    def tail(success: int, failure: int) -> int:
        """The largest t with Pr(count < t) within the budget."""
        term, total, t = failure**trials, 0, 0
        while t <= trials and total + term <= limit:
            total += term
            t += 1
            # C(n,t) a^t b^(n-t) from its neighbour; the division is exact.
            term = term * (trials - t + 1) * success // (t * failure) if failure else int(t == trials) * success**trials
        return t

    return tail(a, b), trials - tail(b, a)
