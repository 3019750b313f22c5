import signal
import unittest

from plan import Cycle, order


class Hidden(unittest.TestCase):
    def setUp(self):
        signal.alarm(20)

    def test_all(self):
        self.assertEqual(order({"x": [], "y": [], "z": []}), ["x", "y", "z"])
        self.assertEqual(order({"app": ["lib", "cfg"], "cfg": [], "lib": ["cfg"], "doc": []}), ["cfg", "lib", "app", "doc"])
        self.assertEqual(order({}), [])

    def test_unlisted(self):
        self.assertEqual(order({"a": ["base"]}), ["base", "a"])

    def test_cycle(self):
        with self.assertRaises(Cycle) as caught:
            order({"ok": [], "a": ["b"], "b": ["c"], "c": ["a"]})
        self.assertEqual(sorted(caught.exception.args[0]), ["a", "b", "c"])


if __name__ == "__main__":
    unittest.main()
