from datetime import datetime


def due(reminders, now):
    """Return the texts of reminders whose time has come.

    reminders: list of (local time as YYYY-MM-DDTHH:MM, IANA zone, text).
    """
    out = []
    for at, zone, text in reminders:
        if datetime.fromisoformat(at) <= now.replace(tzinfo=None):
            out.append(text)
    return out
