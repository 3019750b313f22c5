class Limiter:
    """Allows at most limit calls in window seconds."""

    def __init__(self, limit, window, clock):
        self.limit, self.window, self.clock = limit, window, clock
        self.count, self.slot = 0, None

    def allow(self):
        slot = int(self.clock() / self.window)
        if slot != self.slot:
            self.slot, self.count = slot, 0
        self.count += 1
        return self.count <= self.limit
