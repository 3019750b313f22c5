package order

// Sort returns all targets, each after what it depends on.
func Sort(deps map[string][]string) []string {
	var out []string
	done := map[string]bool{}
	var visit func(string)
	visit = func(target string) {
		if done[target] {
			return
		}
		for _, d := range deps[target] {
			visit(d)
		}
		done[target] = true
		out = append(out, target)
	}
	for target := range deps {
		visit(target)
	}
	return out
}
