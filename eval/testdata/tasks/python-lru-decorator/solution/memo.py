import functools


def memo(function):
    """Remember what a function returned for its arguments."""
    cache = {}

    @functools.wraps(function)
    def inner(*args, **kwargs):
        items = tuple(sorted(kwargs.items()))
        key = (args, items, tuple(type(a) for a in args), tuple(type(v) for _, v in items))
        if key not in cache:
            cache[key] = function(*args, **kwargs)
        return cache[key]

    return inner
