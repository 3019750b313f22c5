CACHE = {}


def memo(function):
    """Remember what a function returned for its arguments."""

    def inner(*args, **kwargs):
        key = str(args)
        if key not in CACHE:
            CACHE[key] = function(*args, **kwargs)
        return CACHE[key]

    return inner
