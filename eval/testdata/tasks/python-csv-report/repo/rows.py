def parse(text):
    """Parse comma separated lines with a header into dicts."""
    lines = [line for line in text.split("\n") if line]
    head = lines[0].split(",")
    return [dict(zip(head, line.split(","))) for line in lines[1:]]
