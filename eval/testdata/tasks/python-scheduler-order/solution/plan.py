class Cycle(Exception):
    """Steps need each other. Its argument is the list of their names."""


def order(steps):
    """Return names so that each comes after all that it needs.

    steps: dict of name -> list of names that it needs. Ties stay in the input's order.
    """
    done, path = [], []

    def visit(name):
        if name in done:
            return
        if name in path:
            raise Cycle(path[path.index(name):])
        path.append(name)
        for need in steps.get(name, []):
            visit(need)
        path.pop()
        done.append(name)

    for name in steps:
        visit(name)
    return done
