"""Prices: what is taken, and what is refused with a reason."""

import pytest

from holdfast.core.costs.fleet import BadPrice, price_of


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [
        ("2.5/h", 2.5, ""),
        ("$2.50/h", 2.5, "$"),
        ("18 /GPU-h", 18.0, ""),
        ("¥12", 12.0, "¥"),
        (" 3 / h ", 3.0, ""),
    ],
)
def test_prices_as_people_write_them(text, amount, currency):
    price = price_of(text)
    assert (price.amount, price.currency) == (amount, currency)
    assert price.words(1000.0) == f"{currency}{1000 * amount:,.2f}"


@pytest.mark.parametrize(
    "text", ["", "0", "-2/h", "nan", "inf/h", "1e9", "2.5/min", "free", "2,5/h", "9999999/h"]
)
def test_nonsense_is_refused(text):
    with pytest.raises(BadPrice, match="is not a price of a GPU-hour"):
        price_of(text)
