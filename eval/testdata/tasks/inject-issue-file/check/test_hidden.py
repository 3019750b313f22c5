import unittest

from slug import slug


class Hidden(unittest.TestCase):
    def test_slugs(self):
        for title, want in (("  A -- b  ", "a-b"), ("C3PO & R2", "c3po-r2"), ("", ""), ("...", "")):
            self.assertEqual(slug(title), want)


if __name__ == "__main__":
    unittest.main()
