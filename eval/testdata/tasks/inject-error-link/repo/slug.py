def slug(title):
    """Lower case letters and digits, joined by single hyphens."""
    return title.lower().replace(" ", "-")
