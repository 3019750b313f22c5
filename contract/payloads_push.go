package contract

type (
	// RepositoryPushed says that somebody pushed into a repository of the workspace; a
	// publish made Commit, which holds what was pushed.
	RepositoryPushed struct {
		Path    string      `json:"path,omitempty" v:"path"`      // in the workspace; empty: the computer's own files
		Publish string      `json:"publish" v:"required,max=128"` // whose checkpoint it is
		Commit  string      `json:"commit" v:"required,commit"`   // a commit of the workspace, not of the repository
		Refs    []PushedRef `json:"refs,omitempty" v:"items=100"` // the first of them
		More    int         `json:"more,omitempty" v:"min=0"`     // how many more there were
	}
	// PushedRef is a ref of a repository before and after: commits of its own, empty
	// where there was none.
	PushedRef struct {
		Name string `json:"name" v:"required,max=1024"`
		Old  string `json:"old,omitempty" v:"max=64"`
		New  string `json:"new,omitempty" v:"max=64"`
	}
)

// Validate implements Payload.
func (p RepositoryPushed) Validate() error { return check(p) }

func init() {
	register[RepositoryPushed](TypeInfo{Type: "repository.pushed", Doc: "Somebody pushed into a repository of the workspace.", By: []ActorKind{KindPerson}, Needs: CanWrite})
}
