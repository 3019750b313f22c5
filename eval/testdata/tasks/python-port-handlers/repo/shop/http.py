"""What handlers are given and what they return, from now on."""
from dataclasses import dataclass, field


class Missing(Exception):
    """A field that a handler requires and the request lacks."""


class Request:
    def __init__(self, fields):
        self._fields = dict(fields)

    def require(self, name):
        if name not in self._fields:
            raise Missing(name)
        return self._fields[name]

    def optional(self, name, otherwise=None):
        return self._fields.get(name, otherwise)


@dataclass(frozen=True)
class Response:
    status: int
    body: dict = field(default_factory=dict)
