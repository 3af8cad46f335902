"""Quotients with the digits that PostgreSQL gives them.

The published result files hold what PostgreSQL printed, and its type `numeric` chooses the number
of decimals by the operands. The rule is that of `select_div_scale` in PostgreSQL's
`src/backend/utils/adt/numeric.c`: at least 16 significant digits, and no fewer decimals than
either operand shows.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal

SIGNIFICANT_DIGITS = 16
#: `numeric` calculates in digits of base 10,000: four decimal digits each.
DIGITS = 4


def divide(dividend: Decimal, divisor: Decimal) -> str:
    """`dividend / divisor` as PostgreSQL prints the quotient of two numerics.

    Decimals of the operands count, trailing zeros too. `divisor` is not zero.
    """
    weight, first = _leading(dividend)
    other_weight, other_first = _leading(divisor)
    quotient_weight = weight - other_weight - (1 if first <= other_first else 0)
    scale = max(
        SIGNIFICANT_DIGITS - quotient_weight * DIGITS, _decimals(dividend), _decimals(divisor), 0
    )
    exact = Context(prec=1000, rounding=ROUND_HALF_UP)
    quotient = exact.divide(dividend, divisor)
    return format(exact.quantize(quotient, Decimal(1).scaleb(-scale)), "f")


def _decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    return max(-exponent, 0)


def _leading(number: Decimal) -> tuple[int, int]:
    """Place and value of the first digit of base 10,000; of zero both are 0."""
    if not number:
        return 0, 0
    weight = number.adjusted() // DIGITS
    return weight, int(abs(number).scaleb(-weight * DIGITS))
