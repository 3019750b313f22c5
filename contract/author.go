package contract

// CheckpointAuthor is whose hand made a checkpoint of a kind for a task, "" for
// none. Lists and live views have it from here, the desktop from the same cases
// (testdata/checkpoint-authors.json), so that a reload changes no name.
func CheckpointAuthor(kind CheckpointKind, task string) ActorKind {
	if task != "" {
		return KindAssociate
	}
	switch kind {
	case CheckpointAuto, CheckpointInitial, CheckpointBefore:
		return KindSystem
	}
	return KindPerson
}
