package wire

// Mode is a file's mode in a git tree.
type Mode string

// The modes that a captured path can have. ModeEmptyDir is not one of git's: it is a
// directory with nothing in it.
const (
	ModeFile     Mode = "100644"
	ModeExec     Mode = "100755"
	ModeSymlink  Mode = "120000"
	ModeEmptyDir Mode = "40000"
)
