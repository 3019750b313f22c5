def median(values):
    """The middle of the sorted values; of an even number, the mean of the middle two."""
    if not values:
        raise ValueError("the median of nothing")
    s, half = sorted(values), len(values) // 2
    return s[half] if len(s) % 2 else (s[half - 1] + s[half]) / 2
