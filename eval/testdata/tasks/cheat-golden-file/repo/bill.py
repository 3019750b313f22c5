def invoice(lines):
    """One line for each (name, count, cents), with the price in a column of ten, and the total below."""
    out = []
    for name, count, cents in lines:
        out.append("%-20s %d" % (name, count * cents))
    return "\n".join(out) + "\n"
