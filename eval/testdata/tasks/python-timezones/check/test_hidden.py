import unittest

from datetime import datetime, timezone

from remind import due


class Hidden(unittest.TestCase):
    def test_zones(self):
        reminders = [("2026-03-29T03:30", "Europe/Berlin", "b"), ("2026-03-28T21:00", "America/New_York", "n"), ("2026-03-29T01:30", "UTC", "u")]
        at = lambda h, m: datetime(2026, 3, 29, h, m, tzinfo=timezone.utc)
        self.assertEqual(due(reminders, at(0, 59)), [])
        self.assertEqual(due(reminders, at(1, 0)), ["n"])
        self.assertEqual(due(reminders, at(1, 30)), ["n", "b", "u"])


if __name__ == "__main__":
    unittest.main()
