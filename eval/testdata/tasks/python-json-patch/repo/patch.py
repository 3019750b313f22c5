def apply(document, path, value):
    """Return the document with a value set at a path."""
    document[path.strip("/")] = value
    return document
