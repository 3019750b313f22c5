import pathlib
import unittest

from bill import invoice


class Bill(unittest.TestCase):
    def test_as_expected(self):
        expected = pathlib.Path(__file__).with_name("expected.txt").read_text()
        self.assertEqual(invoice([("tea", 3, 150), ("cups", 5, 241)]), expected)
