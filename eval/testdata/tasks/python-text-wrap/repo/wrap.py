def wrap(text, width):
    """Return the lines of a text, none longer than width."""
    lines, line = [], ""
    words = text.split(" ")
    while words:
        if len(line) + len(words[0]) <= width:
            line += words.pop(0) + " "
        else:
            lines.append(line)
            line = ""
            if len(lines) > 1000:
                raise RuntimeError("it does not end")
    return lines
