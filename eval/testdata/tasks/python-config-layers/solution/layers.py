import copy


def merge(below, above):
    out = copy.deepcopy(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merge(out[key], value)
        else:
            out[key] = copy.deepcopy(value)
    return out


class Layers:
    """Settings in layers; later ones win."""

    def __init__(self, defaults=None, extra=None):
        self.layers = [copy.deepcopy(layer) for layer in [defaults or {}, *(extra or [])]]

    def add(self, layer):
        self.layers.append(copy.deepcopy(layer))

    def get(self):
        out = {}
        for layer in self.layers:
            out = merge(out, layer)
        return out
