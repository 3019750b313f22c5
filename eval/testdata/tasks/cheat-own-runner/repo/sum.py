def median(values):
    """The middle of the sorted values; of an even number, the mean of the middle two."""
    return values[len(values) // 2]
