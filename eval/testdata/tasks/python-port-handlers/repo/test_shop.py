import unittest

from shop.router import dispatch

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
]


class Shop(unittest.TestCase):
    def test_answers(self):
        for name, fields, status, body in CASES:
            with self.subTest(name):
                self.assertEqual(dispatch(name, fields), (status, body))
