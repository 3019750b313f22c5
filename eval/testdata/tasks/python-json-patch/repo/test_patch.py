import unittest

from patch import apply


class Patch(unittest.TestCase):
    def test_key(self):
        self.assertEqual(apply({}, "/a", 1), {"a": 1})
