//go:build !crashpoints

package crash

// At marks a point.
func At(string) {}

// BoxArgs are arguments of bubblewrap that let boxes see what is armed.
func BoxArgs() []string { return nil }
