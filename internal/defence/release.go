//go:build !defenceswitches

package defence

// Tag is the build tag of this build's kind; tests build what they start with it.
const Tag = ""

// Off reports whether the suite has switched a defence off: never.
func Off(Name) bool { return false }

// BoxArgs are arguments of bubblewrap that let boxes see what is off.
func BoxArgs() []string { return nil }

// LauncherEnv is what a launcher, which has no environment else, needs of it.
func LauncherEnv() []string { return []string{} }
