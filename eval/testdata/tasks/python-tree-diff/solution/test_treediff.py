import unittest

from treediff import diff


class Diff(unittest.TestCase):
    def test_rename(self):
        self.assertEqual(diff({"a": b"x"}, {"b": b"x"}), [("renamed", "a", "b")])
