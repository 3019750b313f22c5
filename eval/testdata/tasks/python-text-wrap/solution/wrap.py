def wrap(text, width):
    """Return the lines of a text, none longer than width."""
    lines = []
    paragraphs = [p.split() for p in "\n".join(line.strip() for line in text.split("\n")).split("\n\n")]
    for words in [p for p in paragraphs if p]:
        if lines:
            lines.append("")
        line = ""
        for word in words:
            while word:
                room = width - len(line) - (1 if line else 0)
                if len(word) <= room:
                    line, word = (line + " " + word if line else word), ""
                elif line:
                    lines.append(line)
                    line = ""
                else:
                    lines.append(word[:width])
                    word = word[width:]
        if line:
            lines.append(line)
    return lines
