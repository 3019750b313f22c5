import unittest

from treediff import diff


class Hidden(unittest.TestCase):
    def test_all(self):
        self.assertEqual(diff({}, {}), [])
        self.assertEqual(diff({"a": b"1", "b": b"2", "c": b"3", "e": b""}, {"a": b"1", "b": b"9", "d": b"3", "f": b""}),
                         [("added", "f"), ("changed", "b"), ("removed", "e"), ("renamed", "c", "d")])
        self.assertEqual(diff({"a": b"x", "b": b"x"}, {"c": b"x"}), [("removed", "b"), ("renamed", "a", "c")])


if __name__ == "__main__":
    unittest.main()
