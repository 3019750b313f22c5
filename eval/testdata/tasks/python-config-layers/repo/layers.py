class Layers:
    """Settings in layers; later ones win."""

    def __init__(self, defaults={}, extra=[]):
        self.layers = extra
        self.layers.insert(0, defaults)

    def add(self, layer):
        self.layers.append(layer)

    def get(self):
        out = self.layers[0]
        for layer in self.layers[1:]:
            out.update(layer)
        return out
