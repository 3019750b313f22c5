from importlib import import_module

from shop.http import Missing, Request


def dispatch(name, fields):
    """Call the handler of a name; return (status, body)."""
    handle = import_module("shop.handlers." + name).handle
    try:
        answer = handle(Request(fields))
    except Missing as e:
        return 400, {"error": "missing " + str(e.args[0])}
    return answer.status, answer.body
