package order

// Plan parses a build file and sorts its targets. It fails with a *CycleError.
func Plan(text string) ([]string, error) { return Sort(Parse(text)) }
