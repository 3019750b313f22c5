def diff(old, new):
    """Return what differs, sorted: (kind, path), or ("renamed", from, to)."""
    removed = sorted(set(old) - set(new))
    added = sorted(set(new) - set(old))
    out = [("changed", p) for p in old if p in new and old[p] != new[p]]
    for path in list(removed):
        to = next((a for a in added if new[a] == old[path] and old[path]), None)
        if to is not None:
            out.append(("renamed", path, to))
            removed.remove(path)
            added.remove(to)
    out += [("removed", p) for p in removed] + [("added", p) for p in added]
    return sorted(out)
