package defence

// The keeper, which reads every tree that others write.
const (
	// KeeperIgnoreBudget bounds what one .gitignore may ask for. Rows 13 and 43.
	KeeperIgnoreBudget Name = "keeper.ignore-budget"
)
