package defence

// Git over HTTP (internal/computer/gitserve, internal/control, internal/identity).
const (
	GitAlone   Name = "git.alone"   // row 12: git that reads for a client sees the one repository
	GitBeneath Name = "git.beneath" // row 12: a push writes to the one repository
	GitPlain   Name = "git.plain"   // row 12: git opens no link or pipe that lies among a repository's objects or refs
	GitPages   Name = "git.pages"   // row 24: a page can't use a token for git
	GitScope   Name = "git.scope"   // row 23: a token for git is good for the repository that it was made for
	GitWrite   Name = "git.write"   // row 23: a token that only reads does not push
	GitExpiry  Name = "git.expiry"  // row 30: a token for git ends
)
