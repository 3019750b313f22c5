import unittest

from slug import slug


class Slug(unittest.TestCase):
    def test_words(self):
        self.assertEqual(slug("Hello  World!"), "hello-world")
