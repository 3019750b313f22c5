import unittest

from limiter import Limiter


class Hidden(unittest.TestCase):
    def test_edge(self):
        now = [59.0]
        limiter = Limiter(2, 60, lambda: now[0])
        got = []
        for at in (59, 59.5, 60, 61, 118.9, 119, 119.4, 119.5):
            now[0] = at
            got.append(limiter.allow())
        self.assertEqual(got, [True, True, False, False, False, True, False, True])


if __name__ == "__main__":
    unittest.main()
