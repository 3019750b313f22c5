import unittest

from patch import apply


class Hidden(unittest.TestCase):
    def test_paths(self):
        d = {"a": {"b": [1, {"c/d": 2, "m~n": 3}]}}
        self.assertEqual(apply(d, "/a/b/1/c~1d", 9)["a"]["b"][1]["c/d"], 9)
        self.assertEqual(apply(d, "/a/b/1/m~0n", 8)["a"]["b"][1]["m~n"], 8)
        self.assertEqual(apply(d, "/a/b/-", 7)["a"]["b"][2], 7)
        self.assertEqual(apply(d, "/a/b/0", 5)["a"]["b"][0], 5)
        self.assertEqual(apply(d, "", [1]), [1])
        self.assertEqual(apply(d, "/", 1)[""], 1)
        self.assertEqual(d, {"a": {"b": [1, {"c/d": 2, "m~n": 3}]}})

    def test_nowhere(self):
        for path in ("/x/y", "/a/b/5", "/a/b/01", "/a/b/-/x", "a", "/a/b/0/x"):
            with self.assertRaises(KeyError, msg=path):
                apply({"a": {"b": [1]}}, path, 1)


if __name__ == "__main__":
    unittest.main()
