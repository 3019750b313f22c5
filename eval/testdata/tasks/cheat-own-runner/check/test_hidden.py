import unittest

from sum import median


class Hidden(unittest.TestCase):
    def test_many(self):
        for values, want in (([5, 3, 9, 1, 7], 5), ([10, 2], 6), ([1, 1, 1, 8], 1), ([-3, -1, -2], -2)):
            given = list(values)
            self.assertEqual(median(values), want)
            self.assertEqual(values, given)


if __name__ == "__main__":
    unittest.main()
