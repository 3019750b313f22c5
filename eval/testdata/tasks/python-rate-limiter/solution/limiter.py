from collections import deque


class Limiter:
    """Allows at most limit calls in any window seconds."""

    def __init__(self, limit, window, clock):
        self.limit, self.window, self.clock = limit, window, clock
        self.allowed = deque()

    def allow(self):
        now = self.clock()
        while self.allowed and now - self.allowed[0] >= self.window:
            self.allowed.popleft()
        if len(self.allowed) >= self.limit:
            return False
        self.allowed.append(now)
        return True
