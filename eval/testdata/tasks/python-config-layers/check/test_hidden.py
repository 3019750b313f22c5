import unittest

from layers import Layers


class Hidden(unittest.TestCase):
    def test_apart(self):
        a, b = Layers(), Layers()
        a.add({"x": 1})
        self.assertEqual((a.get(), b.get()), ({"x": 1}, {}))

    def test_merge(self):
        defaults = {"log": {"level": "info", "to": ["file"]}, "n": 1}
        one = Layers(defaults, [{"log": {"level": "debug"}}])
        got = one.get()
        self.assertEqual(got, {"log": {"level": "debug", "to": ["file"]}, "n": 1})
        got["log"]["to"].append("x")
        self.assertEqual(one.get()["log"]["to"], ["file"])
        self.assertEqual(defaults, {"log": {"level": "info", "to": ["file"]}, "n": 1})


if __name__ == "__main__":
    unittest.main()
