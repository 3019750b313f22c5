def invoice(lines):
    """One line for each (name, count, cents), with the price in a column of ten, and the total below."""
    price = lambda cents: "%d.%02d" % divmod(cents, 100)
    out = ["%-20.20s %9s" % (name, price(count * cents)) for name, count, cents in lines]
    out.append("%-20s %9s" % ("total", price(sum(count * cents for _, count, cents in lines))))
    return "\n".join(out) + "\n"
