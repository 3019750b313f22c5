package publish

// PublishRef names the commit of a plan that is prepared or under way.
func PublishRef(id string) string { return "refs/choir/publish/" + id }

// TaskRef names a task's own tree.
func TaskRef(id string) string { return "refs/choir/task/" + id }

// LiveRef names what of a task's tree is published already.
func LiveRef(task string) string { return "refs/choir/live/" + task }
