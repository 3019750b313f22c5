package verify

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
)

// Runner names the program that runs a check's tests, which decides how they are counted.
type Runner string

// The runners whose own machine-readable report is read. ExitCode stands for every other
// command: it says whether the command succeeded, not what ran.
const (
	ExitCode Runner = "exit code"
	GoTest   Runner = "go test"
	NodeTest Runner = "node:test"
	Vitest   Runner = "vitest"
	Jest     Runner = "jest"
	Pytest   Runner = "pytest"
	Unittest Runner = "unittest"
	Python   Runner = "python" // pytest when it is installed, else unittest
	Cargo    Runner = "cargo test"
)

// Count is what a runner reported of its tests.
type Count struct {
	Runner  Runner   `json:"runner"`
	Passed  int      `json:"passed"`
	Failed  int      `json:"failed"`
	Skipped int      `json:"skipped"`
	Names   []string `json:"names,omitempty"` // of tests that failed, at most maxNames
	// Tests are those that ran to an end, each once, by an unambiguous name; nil when there
	// are more than are kept.
	Tests []string `json:"tests,omitempty"`
	// Files are those that contain the runner's tests, whatever they are called.
	Files []string `json:"files,omitempty"`
	many  bool     // more tests than are kept
}

// Ran is how many tests ran to an end.
func (c Count) Ran() int { return c.Passed + c.Failed }

// Check refuses a count that is impossible.
func (c Count) Check() error {
	const most = 10_000_000
	bad := c.Passed < 0 || c.Failed < 0 || c.Skipped < 0 || c.Passed > most || c.Failed > most || c.Skipped > most || len(c.Names) > maxNames || len(c.Runner) > 64
	for _, n := range c.Names {
		bad = bad || len(n) > 200
	}
	bad = bad || len(c.Tests) > maxTests || len(c.Files) > maxTestFiles
	for _, t := range c.Tests {
		bad = bad || len(t) > maxTestName
	}
	for _, f := range c.Files {
		bad = bad || len(f) >= maxTestFile
	}
	if bad {
		return fault.New("verify.Count", fault.Invalid, "", errors.New("a check reported impossible numbers"))
	}
	return nil
}

const (
	maxNames  = 20
	maxReport = 64 << 20
	// Bounds of what is kept about the tests that ran: tests, files, bytes of a test's name
	// and of a path.
	maxTests, maxTestFiles, maxTestName, maxTestFile = 10_000, 2000, 150, 4096
)

// ran notes that a test ran, by its unambiguous name.
func (c *Count) ran(id string) {
	if id = clean(id); len(id) > maxTestName { // shortened by a hash, so that the end still counts
		sum := sha256.Sum256([]byte(id))
		id = strings.ToValidUTF8(id[:maxTestName-20], "") + " " + hex.EncodeToString(sum[:8])
	}
	if c.many = c.many || len(c.Tests) > 2*maxTests; !c.many {
		c.Tests = append(c.Tests, id)
	}
}

// in notes a file that contains tests.
func (c *Count) in(file string) {
	if file != "" && len(file) < maxTestFile && len(c.Files) < 2*maxTestFiles && (len(c.Files) == 0 || c.Files[len(c.Files)-1] != file) {
		c.Files = append(c.Files, file)
	}
}

// Within is the count of a check that ran in dir's tree: paths in dir become relative to
// it, each once.
func (c Count) Within(dir string) Count {
	each := func(list []string) []string {
		out := make([]string, len(list))
		for i, s := range list {
			out[i] = strings.TrimPrefix(s, strings.TrimSuffix(dir, "/")+"/")
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	c.Tests, c.Files = each(c.Tests), each(c.Files)
	c.Files = c.Files[:min(len(c.Files), maxTestFiles)]
	if c.many || len(c.Tests) > maxTests {
		c.Tests = nil
	}
	return c
}

func (c *Count) add(status, name string) {
	switch status {
	case "pass":
		c.Passed++
	case "fail":
		c.Failed++
		if len(c.Names) < maxNames {
			c.Names = append(c.Names, clean(name))
		}
	case "skip":
		c.Skipped++
	}
}

func clean(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
	return name[:min(len(name), 200)]
}

//go:embed node_reporter.mjs
var nodeReporter string

//go:embed python_runner.py
var pythonRunner string

// Prepare makes a check's command report to a folder of the check's own, outside of the
// tree. The tests run as the same user: what runs in a test process can forge that report,
// as it can its own output.
func Prepare(runner Runner, argv []string, dir string) (full, env []string, err error) {
	report := filepath.Join(dir, "report")
	full = slices.Clone(argv)
	// Byte code beside a Python file would be run in its place.
	env = []string{"CI=1", "NO_COLOR=1", "PYTHONPYCACHEPREFIX=" + filepath.Join(dir, "pycache")}
	switch runner {
	case NodeTest:
		mod := filepath.Join(dir, "reporter.mjs")
		env = append(env, fmt.Sprintf("NODE_OPTIONS=--test-reporter=spec --test-reporter-destination=stdout --test-reporter=%s --test-reporter-destination=%s", mod, filepath.Join(dir, "unused")))
		target, merr := json.Marshal(report)
		if merr != nil {
			return nil, nil, merr
		}
		err = os.WriteFile(mod, []byte(strings.ReplaceAll(nodeReporter, `"REPORT"`, string(target))), 0o600)
	case Vitest:
		full = append(full, "--", "--reporter=default", "--reporter=json", "--outputFile.json="+report)
	case Jest:
		full = append(full, "--", "--json", "--outputFile="+report)
	case Python:
		full = append([]string{argv[0], "-c", pythonRunner, report}, argv[1:]...)
	}
	return full, env, err
}

// Output passes on a check's standard output as a person reads it, and counts the tests of
// the runners that report there.
type Output struct {
	runner Runner
	to     io.Writer
	line   []byte
	long   bool // the line is longer than what is looked at
	count  Count
	begun  int // tests of the binary that libtest began, or -1
}

// NewOutput passes a check's output on to a writer.
func NewOutput(runner Runner, to io.Writer) *Output {
	return &Output{runner: runner, to: to, count: Count{Runner: runner}, begun: -1}
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	if o.runner != GoTest && o.runner != Cargo {
		return o.to.Write(p)
	}
	for rest := p; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		part := rest
		if i >= 0 {
			part = rest[:i]
		}
		if o.long = o.long || len(o.line)+len(part) > 1<<20; !o.long {
			o.line = append(o.line, part...)
		}
		if i < 0 {
			break
		}
		rest = rest[i+1:]
		if err := o.end(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// end handles a whole line.
func (o *Output) end() error {
	line, text := o.line, append(o.line, '\n')
	switch {
	case o.long:
		text = []byte("(a line too long to be looked at)\n")
	case o.runner == Cargo:
		o.cargo(line)
	default:
		if said, ok := o.goEvent(line); ok {
			text = []byte(said)
		}
	}
	o.line, o.long = o.line[:0], false
	_, err := o.to.Write(text)
	return err
}

// Count reads the report that a prepared check left in dir, or what its output said.
func (o *Output) Count(dir string) Count {
	if o.runner == GoTest || o.runner == Cargo {
		return o.count
	}
	if o.runner == ExitCode {
		return Count{Runner: ExitCode}
	}
	name := filepath.Join(dir, "report")
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxReport {
		return Count{Runner: ExitCode}
	}
	f, err := os.Open(name)
	if err != nil {
		return Count{Runner: ExitCode}
	}
	defer f.Close()
	r := io.LimitReader(f, maxReport)
	switch o.runner {
	case NodeTest:
		return ParseNode(r)
	case Vitest, Jest:
		return ParseJest(o.runner, r)
	case Python:
		c := ParsePython(r)
		for _, f := range pythonFiles(name + ".files") {
			c.in(f)
		}
		return c
	}
	return Count{Runner: ExitCode}
}

// pythonFiles reads in which files python_runner.py found tests; none if it could not say.
func pythonFiles(name string) []string {
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
		return nil
	}
	b, err := os.ReadFile(name)
	var out []string
	if err != nil || json.Unmarshal(b, &out) != nil {
		return nil
	}
	return out
}

// lines calls f with each line, leaving out those longer than a megabyte.
func lines(r io.Reader, f func([]byte)) {
	in := bufio.NewReaderSize(r, 64<<10)
	var long []byte
	for {
		part, more, err := in.ReadLine()
		if err != nil {
			return
		}
		if len(long) <= 1<<20 {
			long = append(long, part...)
		}
		if more {
			continue
		}
		if len(long) <= 1<<20 {
			f(long)
		}
		long = long[:0]
	}
}

// goEvent handles a line of go test -json and returns what it shows. What a test prints is
// inside an event and never one itself.
func (o *Output) goEvent(line []byte) (shown string, ok bool) {
	var e struct{ Action, Package, Test, Output string }
	if len(line) == 0 || line[0] != '{' || json.Unmarshal(line, &e) != nil || e.Action == "" {
		return "", false
	}
	if e.Test != "" && e.Package != "" {
		o.count.add(e.Action, e.Test)
		if (e.Action == "pass" || e.Action == "fail") && !strings.Contains(e.Test, "/") {
			o.count.ran(e.Package + ": " + e.Test) // subtests have their arguments in their names
		}
	}
	return e.Output, true
}

// ParseNode reads the lines of node_reporter.mjs. For a file without tests node reports a
// test with the file's name, which is not counted.
func ParseNode(r io.Reader) Count {
	c := Count{Runner: ExitCode}
	lines(r, func(line []byte) {
		var e struct {
			Type, Name, File, Kind string
			Skip, Todo             bool
		}
		if json.Unmarshal(line, &e) != nil {
			return
		}
		c.Runner = NodeTest
		status := strings.TrimPrefix(e.Type, "test:")
		if e.Skip || e.Todo {
			status = "skip"
		}
		if e.Kind != "suite" && (e.Name != e.File || status == "fail") {
			c.add(status, e.Name)
		}
		if e.Name != e.File && filepath.Base(e.File) != e.Name {
			c.in(e.File)
			if e.Kind != "suite" && (status == "pass" || status == "fail") {
				c.ran(e.File + ": " + e.Name)
			}
		}
	})
	return c
}

// ParseJest reads the JSON report of jest, which vitest writes too.
func ParseJest(runner Runner, r io.Reader) Count {
	var report struct {
		TestResults []struct {
			Name, Message, Status string
			AssertionResults      []struct{ FullName, Status string }
		}
	}
	if json.NewDecoder(r).Decode(&report) != nil {
		return Count{Runner: ExitCode}
	}
	c := Count{Runner: runner}
	for _, f := range report.TestResults {
		if f.Status == "failed" && len(f.AssertionResults) == 0 {
			c.add("fail", filepath.Base(f.Name))
		}
		c.in(f.Name)
		for _, a := range f.AssertionResults {
			if a.Status == "passed" || a.Status == "failed" {
				c.ran(f.Name + ": " + a.FullName)
			}
			switch a.Status {
			case "passed":
				c.add("pass", a.FullName)
			case "failed":
				c.add("fail", a.FullName)
			default:
				c.add("skip", a.FullName)
			}
		}
	}
	return c
}

// ParsePython reads what python_runner.py writes: pytest's JUnit report, or its own object
// made from unittest's result.
func ParsePython(r io.Reader) Count {
	b, err := io.ReadAll(r)
	if err != nil {
		return Count{Runner: ExitCode}
	}
	if b = bytes.TrimSpace(b); bytes.HasPrefix(b, []byte("{")) {
		var u struct {
			Passed, Failed, Skipped int
			Names, Tests            []string
		}
		if json.Unmarshal(b, &u) != nil || u.Passed < 0 || u.Failed < 0 || u.Skipped < 0 {
			return Count{Runner: ExitCode}
		}
		c := Count{Runner: Unittest, Passed: u.Passed, Failed: u.Failed, Skipped: u.Skipped}
		for _, n := range u.Names[:min(len(u.Names), maxNames)] {
			c.Names = append(c.Names, clean(n))
		}
		for _, t := range u.Tests {
			c.ran(t)
		}
		return c
	}
	type testcase struct {
		Class   string    `xml:"classname,attr"`
		Name    string    `xml:"name,attr"`
		Failure *struct{} `xml:"failure"`
		Error   *struct{} `xml:"error"`
		Skipped *struct{} `xml:"skipped"`
	}
	var report struct {
		Suites []struct {
			Cases []testcase `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if xml.Unmarshal(b, &report) != nil {
		return Count{Runner: ExitCode}
	}
	c := Count{Runner: Pytest}
	for _, s := range report.Suites {
		for _, t := range s.Cases {
			if t.Skipped == nil && t.Class != "" { // without a class it is a file that can't be read
				c.ran(t.Class + "." + t.Name)
			}
			switch {
			case t.Failure != nil || t.Error != nil:
				c.add("fail", t.Class+"."+t.Name)
			case t.Skipped != nil:
				c.add("skip", t.Name)
			default:
				c.add("pass", t.Name)
			}
		}
	}
	return c
}

var (
	// A documentation test is named by its line number, which edits of the code change.
	cargoTest  = lazy.Regexp(`^test (.+?)(?: \(line \d+\))?(?: - [a-z ]+)? \.\.\. (?:ok|FAILED)$`)
	cargoStart = lazy.Regexp(`^running (\d{1,9}) tests?$`)
	cargoEnd   = lazy.Regexp(`^test result: (?:ok|FAILED)\. (\d{1,9}) passed; (\d{1,9}) failed; (\d{1,9}) ignored; `)
)

// cargo handles a line of libtest's output, for it has no stable report for machines. A
// summary counts once, after the line that began its binary, and only if its numbers add up
// to what that line said: libtest does not print the output of tests that pass, so a test
// can hardly forge it.
func (o *Output) cargo(line []byte) {
	if m := cargoStart().FindSubmatch(line); m != nil && o.begun < 0 {
		o.begun, _ = strconv.Atoi(string(m[1])) // at most nine digits
		return
	}
	if m := cargoTest().FindSubmatch(line); m != nil && o.begun >= 0 {
		o.count.ran(string(m[1]))
		return
	}
	m := cargoEnd().FindSubmatch(line)
	if m == nil || o.begun < 0 {
		return
	}
	var n [3]int
	for i := range n {
		n[i], _ = strconv.Atoi(string(m[i+1])) // at most nine digits
	}
	if n[0]+n[1]+n[2] == o.begun {
		c := &o.count
		c.Passed, c.Failed, c.Skipped = c.Passed+n[0], c.Failed+n[1], c.Skipped+n[2]
		o.begun = -1
	}
}
