import unittest

from plan import order


class Plan(unittest.TestCase):
    def test_chain(self):
        self.assertEqual(order({"c": ["b"], "b": ["a"], "a": []}), ["a", "b", "c"])
