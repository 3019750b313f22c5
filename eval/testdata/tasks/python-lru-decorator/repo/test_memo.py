import unittest

from memo import memo


class Memo(unittest.TestCase):
    def test_once(self):
        calls = []
        f = memo(lambda x: calls.append(x) or x)
        self.assertEqual((f(1), f(1), len(calls)), (1, 1, 1))
