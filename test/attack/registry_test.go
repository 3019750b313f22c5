package attack_test

import (
	"slices"
	"testing"

	"choir.dev/choiros/internal/defence"
)

// Row is one way of an attack of the list, with the defences against it: with all of them off the
// attack works, and any one of them alone stops it.
type Row struct {
	Number   int    // of the list
	Attack   string // what is tried, in a clause
	Defences []defence.Name
	// Run tries it once, with whatever is switched on.
	Run func(t *testing.T) Verdict
	// Inside are the arguments of the probe, if the attack is what it does in a box: it is tried in a task's
	// box and in one of our loops that waits for a run.
	Inside []string
	// Beside is the test in another package that Run runs, if it is one.
	Beside *besideTest
	// Whole says whether it uses the shared computer (whole_test.go).
	Whole bool
	// Alike says that what stops it asks nothing of the machine's user: a rule of the control plane, the
	// log, the gateway or a browser. Beside root, an ordinary user is tried with all on.
	Alike bool
	// NotAs says, for "root" or "user", why it can't be tried as that user: a key of cannot.
	NotAs map[string]string
	// Lacks returns a key of cannot if this machine lacks something that the row needs.
	Lacks func(t *testing.T) string
}

// Verdict is the outcome of one try, and how it was observed.
type Verdict struct {
	Worked   bool
	Evidence string
}

// cannot lists every reason for which a row is not tried as some user or on some machine. Any other
// skip is a failure.
var cannot = map[string]string{
	"cgroups":    "an ordinary user has no writable memory controller unless systemd delegates it, and the computer's notes say so",
	"root-files": "the kernel's own files are closed to an ordinary user by their modes",
	"own-proc":   "where choir runs as root a box's /proc can't be written, for another user it can: each has a row of its own",
	"modes":      "no mode closes a directory to root",
	"ptrace":     "this kernel or its policy lets no process trace another",
	"browser":    "there is no Chromium on this machine",
	"loopback":   "this machine has no loopback address of the sixth protocol, so nobody can listen there",
	"npm":        "there is no npm on this machine",
	"calls":      "this kernel has not got the system call, or keeps it from everybody",
}

// alikePackages hold rules that know no user of the machine.
var alikePackages = []string{"bus", "cli", "computer", "control", "control/service", "dispatch", "gateway", "identity"}

func alikeRow(r Row) bool { return r.Beside != nil && slices.Contains(alikePackages, r.Beside.pkg) }

// alike marks rows of which no defence asks for the machine's user.
func alike(groups ...[]Row) []Row {
	all := slices.Concat(groups...)
	for i := range all {
		all[i].Alike = true
	}
	return all
}

// rows returns the matrix.
func rows() []Row {
	all := slices.Concat(egressRows, boxRows, guestRows, tetherRows, serviceRows, wholeRows, verifyRows, lockRows, hostRows, keeperRows, gitRows, gitHTTPRows, besideRows, spareRows, webRows,
		alike(controlRows, browserRows, scriptRows, outboxRows, desktopRows, grantRows, logRows, actorRows, mcpRows, inwardRows))
	for i, r := range all {
		all[i].Alike = r.Alike || alikeRow(r)
		if r.Inside != nil {
			all[i].Run = inBox(r.Inside...)
			r.Run, r.Attack = inWaiting(r.Inside...), r.Attack+"; in a box that waits for a run"
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b Row) int { return a.Number - b.Number })
	return all
}

// Elsewhere is a part of a row that a test in another package shows.
type Elsewhere struct {
	Number int
	What   string
	File   string // its path in the repository
	Test   string // the test's function, or words of its title
	Why    string // why it is not in the matrix
}
