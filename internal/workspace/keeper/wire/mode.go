package wire

// Mode is what git keeps of a file's kind.
type Mode string

// The modes a captured path can have. ModeEmptyDir is ours: a directory with
// nothing in it.
const (
	ModeFile     Mode = "100644"
	ModeExec     Mode = "100755"
	ModeSymlink  Mode = "120000"
	ModeEmptyDir Mode = "40000"
)
