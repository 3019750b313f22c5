from datetime import datetime
from zoneinfo import ZoneInfo


def due(reminders, now):
    """Return the texts of reminders whose time has come, in the order of their moments.

    reminders: list of (local time as YYYY-MM-DDTHH:MM, IANA zone, text).
    """
    moments = [(datetime.fromisoformat(at).replace(tzinfo=ZoneInfo(zone)).timestamp(), i, text) for i, (at, zone, text) in enumerate(reminders)]
    return [text for moment, _, text in sorted(moments) if moment <= now.timestamp()]
