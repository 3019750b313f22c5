from decimal import Decimal

from rows import parse


def totals(text):
    """Add up the amounts of each customer, in cents."""
    out = {}
    for row in parse(text):
        name = row["customer"]
        out[name] = out.get(name, 0) + int(Decimal(row["amount"]) * 100)
    return out
