package publish

// PublishRef names the commit of a plan that is prepared or under way.
func PublishRef(id string) string { return "refs/choir/publish/" + id }

// TaskRefs is the prefix of the refs of tasks' own trees.
const TaskRefs = "refs/choir/task"

// TaskRef names a task's own tree.
func TaskRef(id string) string { return TaskRefs + "/" + id }

// LiveRefs is the prefix of the refs of tasks that publish while they work.
const LiveRefs = "refs/choir/live"

// PartRef names what was chosen of a task's own tree, which stays under its own ref beside it.
func PartRef(id string) string { return TaskRef(id) + "-part" }

// LiveRef names the part of a task's tree that is published already.
func LiveRef(task string) string { return LiveRefs + "/" + task }
