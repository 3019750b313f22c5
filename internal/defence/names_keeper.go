package defence

// The keeper, which reads every tree that others write.
const (
	// KeeperIgnoreBudget bounds what one .gitignore may ask for. Rows 13 and 43.
	KeeperIgnoreBudget Name = "keeper.ignore-budget"
	// KeeperDepth bounds how long, and so how deep, a path of a tree is that is
	// looked at. Row 43.
	KeeperDepth Name = "keeper.depth"
	// KeeperDeniedPaths: a path that permissions close is a conflict of the publish
	// that wanted to change it, not the end of all publishing. Row 43.
	KeeperDeniedPaths Name = "keeper.denied-paths"
)
