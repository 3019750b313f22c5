# Runs a project's tests and writes what its runner itself says of them. The
# runner is imported before the project's folder is looked in, so no file of
# the project takes its place.
import json
import os
import sys

report, want = sys.argv[1], sys.argv[2:]
sys.path[:] = [p for p in sys.path if p not in ("", os.getcwd())]
try:
    import pytest
except ImportError:
    pytest = None
import unittest

if pytest is None and "pytest" in want:
    print("pytest, which this project is configured for, is not installed here", file=sys.stderr)
    sys.exit(127)
sys.path.insert(0, os.getcwd())
if pytest is not None:
    code = int(pytest.main(["-q", "-p", "no:cacheprovider", "--junitxml=" + report]))
    sys.exit(0 if code == 5 else code)  # 5: no tests, which the report says


def found():
    suite = unittest.TestLoader().discover(".")
    if suite.countTestCases() == 0:
        for d in ("tests", "test"):
            if os.path.isdir(d):
                suite.addTests(unittest.TestLoader().discover(d))
    return suite


result = unittest.TextTestRunner(verbosity=1).run(found())
bad = [t for t, _ in result.failures + result.errors] + list(result.unexpectedSuccesses)
skipped = len(result.skipped) + len(result.expectedFailures)
with open(report, "w") as f:
    json.dump({
        "passed": max(0, result.testsRun - len(bad) - skipped), "failed": len(bad), "skipped": skipped,
        "names": [str(t) for t in bad][:20],
    }, f)
sys.exit(0 if result.wasSuccessful() else 1)
