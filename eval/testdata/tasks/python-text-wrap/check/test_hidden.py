import unittest

from wrap import wrap


class Hidden(unittest.TestCase):
    def test_wrap(self):
        self.assertEqual(wrap("the quick  brown fox", 9), ["the quick", "brown fox"])
        self.assertEqual(wrap("abcdefghij xy", 4), ["abcd", "efgh", "ij", "xy"])
        self.assertEqual(wrap("a b\nc\n\nd", 80), ["a b c", "", "d"])
        self.assertEqual(wrap("", 5), [])
        self.assertEqual(wrap("  \n\n ", 5), [])


if __name__ == "__main__":
    unittest.main()
