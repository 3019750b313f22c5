import csv
import io


def parse(text):
    """Parse comma separated lines with a header into dicts."""
    return list(csv.DictReader(io.StringIO(text)))
