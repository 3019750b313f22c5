//go:build !defenceswitches

package defence

// Tag is the build tag of this kind of build; tests build the programs that they start with
// it.
const Tag = ""

// Off reports whether the suite has switched a defence off: never.
func Off(Name) bool { return false }

// BoxArgs are arguments of bubblewrap that make the switches visible in boxes.
func BoxArgs() []string { return nil }

// LauncherEnv is the environment that a launcher, which otherwise has none, needs for the
// switches.
func LauncherEnv() []string { return []string{} }
