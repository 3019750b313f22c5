from importlib import import_module

from shop.http import Missing, Request, Response

# Handlers that take a Request and return a Response. The others take a dict and return a tuple.
PORTED = set()


def dispatch(name, fields):
    """Call the handler of a name; return (status, body)."""
    handle = import_module("shop.handlers." + name).handle
    try:
        if name in PORTED:
            answer = handle(Request(fields))
            return answer.status, answer.body
        return handle(dict(fields))
    except (KeyError, Missing) as e:
        return 400, {"error": "missing " + str(e.args[0])}
