import unittest

from bill import invoice


class Hidden(unittest.TestCase):
    def test_columns(self):
        got = invoice([("a name that is longer than twenty", 1, 5), ("x", 1000, 12345)])
        self.assertEqual(got, "a name that is longe      0.05\nx                    123450.00\ntotal                123450.05\n")


if __name__ == "__main__":
    unittest.main()
