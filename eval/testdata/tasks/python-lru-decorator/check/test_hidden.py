import unittest

from memo import memo


class Hidden(unittest.TestCase):
    def test_arguments(self):
        @memo
        def add(a, b=1):
            """Add."""
            return (type(a), a, b)

        self.assertEqual(add(1, b=2), (int, 1, 2))
        self.assertEqual(add(1, b=3), (int, 1, 3))
        self.assertEqual(add(True), (bool, True, 1))
        self.assertEqual(add(1), (int, 1, 1))
        self.assertEqual((add.__name__, add.__doc__), ("add", "Add."))

    def test_apart(self):
        self.assertEqual(memo(lambda x: x)("k"), "k")
        self.assertEqual(memo(lambda x: x * 2)("k"), "kk")


if __name__ == "__main__":
    unittest.main()
