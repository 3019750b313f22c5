import copy


def apply(document, path, value):
    """Return a copy of the document with a value set at a JSON pointer."""
    if path == "":
        return copy.deepcopy(value)
    if not path.startswith("/"):
        raise KeyError(path)
    parts = [p.replace("~1", "/").replace("~0", "~") for p in path[1:].split("/")]
    out = copy.deepcopy(document)
    at = out
    for n, part in enumerate(parts):
        last = n == len(parts) - 1
        if isinstance(at, list):
            if part == "-" and last:
                at.append(value)
                return out
            if not part.isdigit() or (len(part) > 1 and part[0] == "0") or int(part) >= len(at):
                raise KeyError(path)
            part = int(part)
        elif not isinstance(at, dict) or (part not in at and not last):
            raise KeyError(path)
        if last:
            at[part] = value
        else:
            at = at[part]
    return out
