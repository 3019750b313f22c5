# Runs a project's tests and writes what its runner itself says of them. The
# runner is imported before the project's folder is looked in, so no file of
# the project takes its place.
import json
import os
import sys

report, want = sys.argv[1], sys.argv[2:]
start = (["." + os.sep + w[3:] for w in want if w.startswith("in:")] or ["."])[0]  # the package, where that is not all, and no option
also = [os.path.abspath(w[5:]) for w in want if w.startswith("from:")] + [os.path.abspath(start)]
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
sys.path += [p for p in also if p not in sys.path]


def files(cases):  # in which the tests stand, and what they are classes of
    out = set()
    for c in cases:
        for m in [sys.modules.get(k.__module__) for k in getattr(c, "__mro__", ())] + [c]:
            f = str(getattr(m, "__file__", None) or "")
            out |= {p for p in (os.path.abspath(f), os.path.realpath(f)) if f and p.startswith(os.getcwd() + os.sep)}
    with open(report + ".files", "w") as f:
        json.dump(sorted(out)[:2000], f)


class Collected:
    def pytest_collection_finish(self, session):
        files([getattr(i, a, None) for i in session.items for a in ("cls", "module")])


if pytest is not None:
    code = int(pytest.main(["-q", "-p", "no:cacheprovider", "--junitxml=" + report] + [start] * (start != "."), plugins=[Collected()]))
    sys.exit(0 if code == 5 else code)  # 5: no tests, which the report says


def found():
    top = os.path.abspath(start)
    while top != os.getcwd() and os.path.isfile(os.path.join(top, "__init__.py")):
        top = os.path.dirname(top)
    suite = unittest.TestLoader().discover(start, top_level_dir=top)
    for d in (os.path.join(start, d) for d in ("tests", "test")):
        if os.path.isdir(d) and (suite.countTestCases() == 0 or not os.path.isfile(os.path.join(d, "__init__.py"))):
            try:
                suite.addTests(unittest.TestLoader().discover(d))
            except ImportError:  # a file there has the name of one that was found
                if suite.countTestCases() == 0:
                    raise
    return suite


def flat(suite):
    return [t for s in suite for t in (flat(s) if isinstance(s, unittest.TestSuite) else [s])]


class Result(unittest.TextTestResult):
    def startTest(self, test):
        super().startTest(test)
        began.append(test.id())


began = []
suite = found()
files({type(t) for t in flat(suite) if type(t).__module__.split(".")[0] != "unittest"})
result = unittest.TextTestRunner(verbosity=1, resultclass=Result).run(suite)
bad = [t for t, _ in result.failures + result.errors] + list(result.unexpectedSuccesses)
skipped = len(result.skipped) + len(result.expectedFailures)
left = {t.id() for t, _ in result.skipped + result.expectedFailures}
with open(report, "w") as f:
    json.dump({
        "passed": max(0, result.testsRun - len(bad) - skipped), "failed": len(bad), "skipped": skipped,
        "names": [str(t) for t in bad][:20],
        "tests": [t for t in began if t not in left and not t.startswith("unittest.")],
    }, f)
sys.exit(0 if result.wasSuccessful() else 1)
