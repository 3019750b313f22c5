import re


def slug(title):
    """Lower case letters and digits, joined by single hyphens."""
    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))
