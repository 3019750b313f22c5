import unittest
from importlib import import_module

from shop import router
from shop.http import Request, Response

NAMES = ["ping", "echo", "add", "greet", "divide", "upper", "words", "slug", "turn", "largest", "mean", "unique", "clamp", "fizz", "leap", "initials", "gcd", "chunk", "mask", "brew"]
CASES = [
    ("ping", {}, 200, {'pong': True}),
    ("echo", {'text': 'a'}, 200, {'echo': 'a'}),
    ("echo", {}, 400, {'error': 'missing text'}),
    ("add", {'a': 2, 'b': 3}, 200, {'sum': 5}),
    ("greet", {}, 200, {'greeting': 'Hello, you'}),
    ("divide", {'a': 1, 'b': 0}, 422, {'error': 'division by zero'}),
    ("upper", {'text': 'ab'}, 200, {'text': 'AB'}),
    ("words", {'text': 'a b  c'}, 200, {'words': 3}),
    ("slug", {'title': 'A b, c'}, 200, {'slug': 'a-b-c'}),
    ("turn", {'text': 'abc'}, 200, {'text': 'cba'}),
    ("largest", {'numbers': []}, 422, {'error': 'no numbers'}),
    ("mean", {'numbers': [1, 2]}, 200, {'mean': 1.5}),
    ("unique", {'items': [2, 1, 2]}, 200, {'items': [2, 1]}),
    ("clamp", {'value': 200}, 200, {'value': 100}),
    ("fizz", {'n': 15}, 200, {'said': 'fizzbuzz'}),
    ("leap", {'year': 1900}, 200, {'leap': False}),
    ("initials", {'name': 'ada b'}, 200, {'initials': 'AB'}),
    ("gcd", {'a': 12, 'b': 18}, 200, {'gcd': 6}),
    ("chunk", {'items': [1, 2, 3]}, 200, {'chunks': [[1, 2], [3]]}),
    ("mask", {'text': '123456'}, 200, {'text': '**3456'}),
    ("brew", {}, 418, {'error': "I'm a teapot"}),
    ("words", {'text': 'a,b', 'separator': ','}, 200, {'words': 2}),
    ("slug", {'title': 'X y', 'join': '_'}, 200, {'slug': 'x_y'}),
    ("greet", {'name': '  '}, 200, {'greeting': 'Hello, you'}),
    ("clamp", {'value': 1, 'low': 5, 'high': 2}, 422, {'error': 'low is above high'}),
    ("chunk", {'items': [1], 'size': 0}, 422, {'error': 'a chunk has at least one item'}),
    ("brew", {'device': 'pot', 'drink': 'tea'}, 201, {'brewed': 'tea'}),
    ("brew", {'device': 'pot'}, 400, {'error': 'missing drink'}),
    ("mask", {'text': '123', 'kept': 5}, 200, {'text': '123'}),
    ("divide", {'a': 1}, 400, {'error': 'missing b'}),
]


class Hidden(unittest.TestCase):
    def test_each_is_ported(self):
        self.assertFalse(hasattr(router, "PORTED"))
        for name in NAMES:
            fields = next(f for n, f, s, _ in CASES if n == name and s != 400)
            with self.subTest(name):
                self.assertIsInstance(import_module("shop.handlers." + name).handle(Request(fields)), Response)

    def test_behaviour_stays(self):
        for name, fields, status, body in CASES:
            with self.subTest(name):
                given = dict(fields)
                self.assertEqual(router.dispatch(name, given), (status, body))
                self.assertEqual(given, fields)


if __name__ == "__main__":
    unittest.main()
