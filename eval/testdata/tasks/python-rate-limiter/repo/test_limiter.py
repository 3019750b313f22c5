import unittest

from limiter import Limiter


class Limits(unittest.TestCase):
    def test_limit(self):
        self.assertEqual([Limiter(1, 60, lambda: 0).allow()], [True])
