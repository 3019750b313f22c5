package verify

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/lazy"
)

// Ran is a check that was run.
type Ran struct {
	Check   Check
	Command contract.Command
	Count   Count
	// NotRun says that the host could not run it, for example for want of a box: that says
	// nothing about the tree, not even that there is no such check in it.
	NotRun bool
}

// LeftBehind is a path that a task left behind and that no tree can hold, and why.
type LeftBehind struct{ Path, Reason string }

// Evidence is everything a verification is judged by.
type Evidence struct {
	Profile contract.VerifyProfile
	Tree    string
	// Base is what Gather found in the base around the changed paths, and Facts what it
	// found in the change.
	Base, Facts Facts
	Guards      []Guard
	Words       string   // what the user said, which shows what was asked for
	Installed   []string // ignored folders that the task put something into
	Obeyed      []string // changed paths that git runs or obeys
	Left        []LeftBehind
	// Held are the checks on the change with the base's tests, manifests and configuration
	// restored; After are those on the change as it is, if that differs.
	Held, After []Ran
	Sent        []Ran // the sender's own commands, on the change as it is
	// Before are the checks on the base itself, to compare the numbers of tests with.
	Before []Ran
	// Locked is what was installed for the checks because the live tree did not have it.
	Locked []contract.Installation
	Cut    bool // not everything could be examined, or checked
	Notes  []string
}

// status judges one check by itself. A command that could not be started, or a shell that
// did not find one (126, 127), says nothing about the tree.
func (r Ran) status() contract.VerificationStatus {
	switch code := r.Command.ExitCode; {
	case code == 0 && r.Count.Failed > 0:
		return contract.VerificationFail // whatever the exit code is
	case code == 0:
		return contract.VerificationPass
	case code < 0 || code == 126 || code == 127:
		return contract.VerificationUnknown
	}
	return contract.VerificationFail
}

// Failed reports whether a check failed, which decides a run of checks.
func (r Ran) Failed() bool { return r.status() == contract.VerificationFail }

// withBase is the suffix of a recorded check's name when it ran with the guards restored.
const withBase = ", with what the base judges by"

// CheckName is a recorded check's name without that suffix.
func CheckName(c contract.Check) string { return strings.TrimSuffix(c.Name, withBase) }

func (r Ran) recorded(suffix string) contract.Check {
	return contract.Check{Name: r.Check.Name + suffix, Status: r.status(), Command: r.Command, Runner: string(r.Count.Runner), Ran: r.Count.Ran(), Skipped: r.Count.Skipped}
}

// why says in words why a check did not pass.
func (r Ran) why() string {
	text := fmt.Sprintf("%s: exit code %d", r.Check.Name, r.Command.ExitCode)
	if r.Command.ExitCode < 0 || r.status() == contract.VerificationUnknown {
		text = r.Check.Name + " could not be run"
	}
	if len(r.Count.Names) > 0 {
		text += ", failed: " + strings.Join(r.Count.Names[:min(5, len(r.Count.Names))], ", ")
	}
	if m := r.missing(); m != "" {
		text += ", missing: " + m
	}
	return text
}

var absent = lazy.Regexp(`(?:pytest, which this project is configured for, is not installed|Cannot find (?:module|package) '[^']{1,200}'|No module named '[^']{1,200}'|no required module provides package [^\s;:]{1,200}|missing go\.sum entry[^\n]{0,200}|[^\s":\\]{1,200}@v[^\s":\\]{1,100}: (?:Get |module lookup disabled)|module lookup disabled by GOPROXY=off|cannot find module providing package [^\s;:]{1,200}|no matching package named .[^\s]{1,200}|can't find crate for .[^\s]{1,200})`)

// missing is the dependency that a failed check's output says is missing.
func (r Ran) missing() string {
	if r.Command.ExitCode == 0 {
		return ""
	}
	found := absent().FindString(r.Command.Stderr + "\n" + r.Command.Stdout)
	return clean(strings.TrimSuffix(strings.TrimSuffix(found, ": Get "), ": module lookup disabled"))
}

// advice says how to make available what a check lacks.
func (c Check) advice() string {
	program := ""
	if len(c.Argv) > 0 {
		program = path.Base(c.Argv[0])
	}
	with := ""
	switch {
	case c.Runner == Python || strings.HasPrefix(program, "python"):
		return "install what its requirements name in the live project, such as by choir exec with python3 -m venv .venv and .venv/bin/pip install; what is the project's own must be found from " + c.Cwd
	case program == "npm" || program == "tsc":
		with = "npm ci"
	case program == "go":
		with = "go mod vendor"
	case program == "cargo":
		with = "cargo vendor"
	default:
		return "install it in the live project, such as by choir exec"
	}
	return "install what the lock file names in the live project, such as by choir exec with " + with
}

func first(list []Ran, is contract.VerificationStatus) *Ran {
	for i := range list {
		if list[i].status() == is {
			return &list[i]
		}
	}
	return nil
}

// Judge turns evidence into a verification. One failure makes it fail. To pass, the tests
// of every touched project must have run, with a number reported by a runner that is no
// smaller than before the change, judged by the base's files. Everything else is unknown
// and says why.
func Judge(e Evidence) contract.Verification {
	v := contract.Verification{Profile: e.Profile, Tree: e.Tree, Status: contract.VerificationPass, Said: e.said(), Installed: e.Locked[:min(len(e.Locked), maxLocked)]}
	final := e.After
	if len(e.Guards) == 0 {
		final = e.Held
	}
	held := ""
	if len(e.Guards) > 0 {
		held = withBase
	}
	for _, r := range e.Held {
		v.Checks = append(v.Checks, r.recorded(held))
		v.Tests += r.Count.Ran()
	}
	for _, r := range append(slices.Clone(e.After), e.Sent...) {
		v.Checks = append(v.Checks, r.recorded(""))
	}
	reasons := slices.Clone(e.Notes)
	doubts, unchecked := 0, 0
	unless := func(why string, args ...any) {
		doubts++
		if v.Status == contract.VerificationPass {
			v.Status = contract.VerificationUnknown
		}
		reasons = append(reasons, fmt.Sprintf(why, args...))
	}
	basis := e.Held
	failed := first(final, contract.VerificationFail)
	broke := first(e.Held, contract.VerificationFail)
	switch {
	case failed != nil && failed.missing() != "" && e.lacks(failed):
		unless("a dependency is missing here, so this could not be checked: %s; %s, and try again", failed.why(), failed.Check.advice())
	case failed != nil:
		v.Status = contract.VerificationFail
		reasons = append(reasons, failed.why())
	case broke != nil && granted(e.Guards, e.Words) && counted(e.After) > 0:
		basis = e.After
		reasons = append(reasons, "what the user asked to change decides here; with what the base had, "+broke.why())
	case broke != nil:
		unless("it passes only with what the task itself changed; with what the base judges by, %s", broke.why())
	}
	if c := first(e.Sent, contract.VerificationFail); c != nil {
		v.Status = contract.VerificationFail
		reasons = append(reasons, c.why())
	}
	if v.Status != contract.VerificationFail {
		for _, list := range [][]Ran{basis, final, e.Sent} {
			if c := first(list, contract.VerificationUnknown); c != nil {
				unless("%s", c.why())
				break
			}
		}
		e.doubts(basis, final, unless, func(where string) {
			unchecked++
			unless("no check was found for %s", where)
		})
	}
	v.NoCheck = v.Status == contract.VerificationUnknown && len(v.Checks) == 0 && doubts == unchecked
	v.Reason = strings.Join(slices.Compact(reasons), "; ")
	v.Reason = v.Reason[:min(len(v.Reason), 7000)]
	return v
}

// Scope lists what the checks depend on: the outermost projects of what was
// touched, what their manifests name outside of them, and files of no project.
func (e Evidence) Scope() []string {
	var out []string
	for _, f := range []Facts{e.Base, e.Facts} {
		for _, p := range f.Projects {
			out = append(append(out, group(f, p.Dir)), p.Refs...)
		}
		out = append(out, f.Loose...)
		if f.Theme {
			out = append(out, contract.ThemePath)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// compare lists the checks that should be run on the base too, to know how many tests ran
// before the change and whether a dependency was missing then.
func (e Evidence) compare() []Check {
	var out []Check
	add := func(r Ran) {
		if !slices.ContainsFunc(out, func(c Check) bool { return c.Name == r.Check.Name }) {
			out = append(out, r.Check)
		}
	}
	final := append(slices.Clone(e.Held), e.After...)
	failed := first(final, contract.VerificationFail)
	if granted(e.Guards, e.Words) && len(e.Guards) > 0 {
		failed = first(e.After, contract.VerificationFail) // these decide then
	} else {
		final = e.Held
	}
	for _, r := range final {
		if r.missing() != "" || failed == nil && r.Count.Ran() > 0 {
			add(r)
		}
	}
	return out
}

// doubts gives the reasons why checks that did not fail are still no verification.
func (e Evidence) doubts(basis, final []Ran, unless func(string, ...any), none func(where string)) {
	if e.Profile == contract.VerifyNone && !defence.Off(defence.CheckNone) {
		unless("no verification was asked for, and a sender's own commands are none")
		return
	}
	for _, i := range e.Locked {
		if i.Problem != "" {
			unless("what %s names could not be installed for the checks: %s", clean(i.Lock), i.Problem)
			break
		}
	}
	if p := e.unasked(); p != "" && !defence.Off(defence.CheckGit) {
		unless("nobody asked for a change of how git behaves there: %s", clean(p))
	}
	if e.Cut {
		unless("only a part of what changed was looked at")
	}
	e.uncounted(basis, unless, none)
	if !defence.Off(defence.CheckControl) {
		for _, list := range [][]Ran{basis, final} {
			for _, r := range list {
				for _, b := range e.Before {
					if b.Check.Name == r.Check.Name && r.Count.Ran() < b.Count.Ran() {
						unless("%s ran %d tests; before the change it ran %d", r.Check.Name, r.Count.Ran(), b.Count.Ran())
					}
				}
			}
		}
		for _, b := range e.Before {
			if b.NotRun {
				unless("what %s ran before the change is not known: %s", b.Check.Name, b.Command.Stderr)
			}
		}
		e.vanished(basis, unless)
	}
	if defence.Off(defence.CheckWeakened) {
		return
	}
	for _, g := range e.Guards {
		if g.Kind == GuardTest && g.Op == contract.ChangeDeleted || g.Kind == GuardTool && g.Op != contract.ChangeDeleted {
			unless("%s", g.Said())
			break
		}
	}
	for _, r := range final {
		for _, h := range e.Held {
			if h.Check.Name == r.Check.Name && r.Count.Skipped > h.Count.Skipped {
				unless("%s skips %d tests; with the base's tests it skips %d", r.Check.Name, r.Count.Skipped, h.Count.Skipped)
			}
		}
	}
}

// vanished finds tests that ran before the change and did not run on it: others, or some
// that ran twice, do not replace them.
func (e Evidence) vanished(basis []Ran, unless func(string, ...any)) {
	for _, b := range e.Before {
		for _, r := range basis {
			if r.Check.Name != b.Check.Name || r.Count.Ran() == 0 || len(b.Count.Tests) == 0 {
				continue
			}
			there := map[string]bool{}
			for _, t := range r.Count.Tests {
				there[t] = true
			}
			gone := slices.DeleteFunc(slices.Clone(b.Count.Tests), func(t string) bool { return there[t] })
			switch {
			case len(r.Count.Tests) == 0:
				unless("%s ran more tests than can be told apart", r.Check.Name)
			case len(gone) > 0:
				unless("%d tests that %s ran before the change did not run on it: %s", len(gone), r.Check.Name, strings.Join(gone[:min(3, len(gone))], ", "))
			}
		}
	}
}

// uncounted finds the projects for which no test is known to have run.
func (e Evidence) uncounted(basis []Ran, unless func(string, ...any), none func(where string)) {
	if defence.Off(defence.CheckCount) {
		if len(basis)+len(e.Sent) == 0 {
			none("what changed")
		}
		return
	}
	groups := map[string]bool{} // by whether it is covered
	for _, p := range e.Facts.Projects {
		groups[group(e.Facts, p.Dir)] = false
	}
	for _, f := range append(slices.Clone(e.Facts.Loose), e.Base.Loose...) {
		in := func(p Project) bool { return p.Dir == "." || strings.HasPrefix(f, p.Dir+"/") }
		if !slices.ContainsFunc(e.Facts.Projects, in) && !slices.ContainsFunc(e.Base.Projects, in) {
			groups[noProject] = false // they have no tests
		}
	}
	for _, r := range basis {
		groups[r.Check.Group] = groups[r.Check.Group] || r.Check.Enough || r.Count.Ran() > 0
	}
	if len(groups) == 0 {
		none("what changed")
	}
	var names []string
	for g, covered := range groups {
		if !covered {
			names = append(names, g)
		}
	}
	slices.Sort(names)
	for _, g := range names {
		where := g
		if g == "." {
			where = "the workspace"
		}
		var ran []string
		for _, r := range basis {
			if r.Check.Group == g {
				ran = append(ran, r.Check.Name)
			}
		}
		own := 0
		for _, r := range e.After {
			if r.Check.Group == g {
				own += r.Count.Ran()
			}
		}
		switch {
		case own > 0:
			unless("nothing of before the task tests %s; the %d tests that passed are the task's own", where, own)
		case len(ran) > 0:
			unless("no test is known to have run for %s: %s gave an exit code and no number of tests", where, strings.Join(ran, ", "))
		default:
			none(where)
		}
	}
}

func counted(list []Ran) int {
	n := 0
	for _, r := range list {
		n += r.Count.Ran()
	}
	return n
}

// lacks reports whether a dependency is missing for a reason other than the change's code:
// the task changed a manifest, or the base can't be checked here for the same reason.
func (e Evidence) lacks(r *Ran) bool {
	for _, b := range e.Before {
		if b.Check.Name == r.Check.Name && b.missing() == r.missing() {
			return true
		}
	}
	return slices.ContainsFunc(e.Guards, func(g Guard) bool { return g.Kind == GuardManifest })
}

// maxSaid and maxLocked bound what a result lists.
const maxSaid, maxLocked = 40, 100

// maxLeftSaid is how much of what was left behind is named.
const maxLeftSaid = 5

// said is what a person should know of the change's own judges.
func (e Evidence) said() []string {
	var out []string
	for _, g := range e.Guards {
		if len(out) == maxSaid {
			out = append(out, fmt.Sprintf("and %d more of these", len(e.Guards)-len(out)))
			break
		}
		s := clean(g.Path)
		out = append(out, strings.Replace(g.Said(), g.Path, s, 1))
	}
	for i, p := range e.Obeyed {
		if i == maxLeftSaid {
			out = append(out, fmt.Sprintf("and %d more that git runs or obeys", len(e.Obeyed)-i))
			break
		}
		out = append(out, "the task changed how git behaves there: "+clean(p))
	}
	for n, i := range e.Locked {
		if n == maxLocked/10 {
			break
		}
		if i.Of == contract.LockOfChange {
			out = append(out, "the checks ran with what the task's own "+clean(i.Lock)+" names, which is not live: install it there")
		}
		if i.Note != "" {
			out = append(out, clean(i.Lock)+": "+clean(i.Note))
		}
	}
	for i, dir := range e.Installed {
		if i < maxSaid && slices.Contains(toolDirs, path.Base(dir)) {
			out = append(out, "what the task installed in "+clean(dir)+" is not live: install it there, and it can be checked with it")
		}
	}
	return append(out, SaidOf(e.Left)...)
}

// SaidOf lists what a person should know about what a task left behind.
func SaidOf(behind []LeftBehind) []string {
	var out []string
	for i, left := range behind {
		if i == maxLeftSaid {
			out = append(out, fmt.Sprintf("%d more that the task left are not taken either", len(behind)-i))
			break
		}
		out = append(out, "what the task left at "+clean(left.Path)+" is not taken, nor in any checkpoint: it "+left.Reason)
	}
	return out
}
