import unittest

from report import totals


class Report(unittest.TestCase):
    def test_plain(self):
        self.assertEqual(totals("customer,amount\na,1.50\na,2\n"), {"a": 350})

    def test_file(self):
        with open("data/sales.csv") as f:
            self.assertEqual(totals(f.read()), {"Smith, Inc.": 2000, "Jones": 29})
