class Cycle(Exception):
    """Steps need each other."""


def order(steps):
    """Return names so that each comes after all that it needs.

    steps: dict of name -> list of names that it needs.
    """
    done = []
    wanted = [n for needs in steps.values() for n in needs]
    while wanted:
        name = wanted.pop(0)
        if name in done:
            continue
        if all(n in done for n in steps.get(name, [])):
            done.append(name)
        else:
            wanted.append(name)
    return done
