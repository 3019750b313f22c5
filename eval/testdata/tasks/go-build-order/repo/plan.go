package order

// Plan parses a build file and sorts its targets.
func Plan(text string) []string { return Sort(Parse(text)) }
