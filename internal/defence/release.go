//go:build !defenceswitches

package defence

// Off reports whether the suite has switched a defence off: never.
func Off(Name) bool { return false }
