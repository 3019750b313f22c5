package defence

// Name is what a defence is called in code, in the suite and in docs/attacks.md.
type Name string

const (
	// EgressNarrow: a task can name hosts only within what its computer was
	// granted or a person approved. Row 42.
	EgressNarrow Name = "egress-narrow"
	// EgressRawTCP: no model can ask for a tunnel that is not TLS. Row 42.
	EgressRawTCP Name = "egress-raw-tcp"
	// ApprovalDigest: an answer counts only for the act it names. Row 54.
	ApprovalDigest Name = "approval-digest"
	// ApprovalOnce: an approval has one answer. Row 54.
	ApprovalOnce Name = "approval-once"
	// ApprovalDefault: without an answer in time the act is denied. Row 42.
	ApprovalDefault Name = "approval-default"
	// ApprovalCap: a run can't bury its user in questions. Row 42.
	ApprovalCap Name = "approval-cap"
	// ApprovalConsole: only the console's own session and the owner's own program
	// on the machine answer approvals. Row 22.
	ApprovalConsole Name = "approval-console"

	// BudgetOwner: a prompt can lower the owner's budget of a run, not raise it.
	// Row 45.
	BudgetOwner Name = "budget-owner"
	// BudgetAll: the day's, the computer's and the owner's budgets bound every
	// call. Row 45.
	BudgetAll Name = "budget-all"
	// BudgetPrice: a model without a price is not used under a cost budget. Row 45.
	BudgetPrice Name = "budget-price"
	// BudgetReserve: a call's worst case is taken before it is made, so that
	// parallel ones can't overshoot. Row 31.
	BudgetReserve Name = "budget-reserve"
	// BudgetCredible: usage that is negative or absurd is not believed. Row 31.
	BudgetCredible Name = "budget-credible"

	// ClaimArgv: the claim token stands in no argument list, which every program
	// of the machine can read. Row 24.
	ClaimArgv Name = "claim-argv"
	// TerminalText: what the command line prints is text to a terminal, whoever
	// wrote it. Row 26.
	TerminalText Name = "terminal-text"
	// CompletedNames: a shell is offered no name that it would read as anything but
	// one word. Row 26.
	CompletedNames Name = "completed-names"
	// ListenBoth: the port is ours at both loopback addresses, at which browsers
	// look for the console. Row 20.
	ListenBoth Name = "listen-both"
	// RuntimeProcess: the machine's token goes to the process that left it, not to
	// whoever has its number and port since. Row 39.
	RuntimeProcess Name = "runtime-process"
	// ClientGovern: what a page stored keeps nobody from stopping a run, answering
	// an approval or going back. Row 45.
	ClientGovern Name = "client-govern"
	// DataPrivate: the data directory is the user's who runs choir, and closed to
	// others. Row 39.
	DataPrivate Name = "data-private"
	// ExecRedacted: what the user's commands are given is recorded without
	// secrets. Row 39.
	ExecRedacted Name = "exec-redacted"
	// EgressMeter: what passes a tunnel is on record, and one that can't be
	// recorded ends. Row 7.
	EgressMeter Name = "egress-meter"
	// ClientFlood: what clients append is bounded by session, computer and day.
	// Row 45.
	ClientFlood Name = "client-flood"
)

// Row 46: a model that cheats its verification.
const (
	CheckBase         Name = "verify-base"         // the base's tests, manifests, configuration and tools judge the change
	CheckFound        Name = "verify-found"        // what the base's runner found tests in judges too, whatever it is called
	CheckDependencies Name = "verify-dependencies" // a task's ignored folders are not in a check's box
	CheckOutermost    Name = "verify-outermost"    // a nearer manifest hides no project further out
	CheckCount        Name = "verify-count"        // a runner must have reported tests
	CheckControl      Name = "verify-control"      // as many tests as before the change
	CheckNone         Name = "verify-none"         // without a profile nothing is verified
	CheckGit          Name = "verify-git"          // what git runs or obeys is changed only where that was asked for
	CheckRendered     Name = "verify-rendered"     // a page that ends the program which judges it has not painted
	CheckWeakened     Name = "verify-weakened"     // deleted and skipped tests, and new tools, verify nothing
	RunConjunction    Name = "run-conjunction"     // a failed task is not made up for by another
)

// Row 40: what lock files name, installed for checks.
const (
	LockHashes     Name = "lock-hashes"     // a lock that names anything without a hash, or from elsewhere than a registry, is not installed from
	LockBase       Name = "lock-base"       // the base's locks are installed from, unless the user's words name their change
	CacheThrown    Name = "cache-thrown"    // what a check writes over an installed tree is removed with the check's box
	SharedInputs   Name = "shared-inputs"   // a tree that all computers share is named by everything that decides what is in it
	SharedScripts  Name = "shared-scripts"  // no package's code has ever run over a shared tree
	SharedComplete Name = "shared-complete" // a tree from which a package is missing is not shared
	SharedPlain    Name = "shared-plain"    // no link in a shared tree leads out of it
	SharedWhole    Name = "shared-whole"    // a shared tree that differs from what was kept is made again
	SharedFailure  Name = "shared-failure"  // what one computer could not install, another tries to install for itself
	InstallQuiet   Name = "install-quiet"   // nothing that was fetched runs where there is a network
)

// The desktop's origin and its page.
const (
	BoxInformational Name = "box-informational" // 44: informational answers of the dev server end at the host
	BoxHeadersApart  Name = "box-headers-apart" // 44: the dev server's headers are copied by name, and the host's set after them
	PageAlone        Name = "page-alone"        // 47: a broken page says nothing about the desktop while another one is well
	PageCurrent      Name = "page-current"      // 47: a page that newer source could not be loaded into says nothing about that
	UnverifiedOnly   Name = "unverified-only"   // 47: what a check has passed is taken back by nobody's browser
	OutputWindow     Name = "output-window"     // 48: a command waits for who reads its output
	UsersEditsStay   Name = "users-edits-stay"  // 47: nothing goes back unasked if more than one task's edits would
)
