def diff(old, new):
    raise NotImplementedError
