package contract

// CheckpointAuthor is whose hand made a checkpoint: of who its event is by, where
// somebody asked for it. The host makes those of tasks and those that nobody asks
// for, and made all before events said who asked: then kind and task tell. Lists and live views have it from here, the desktop from the same cases
// (testdata/checkpoint-authors.json), so that a reload changes no name.
func CheckpointAuthor(kind CheckpointKind, task string, by ActorKind) ActorKind {
	if by.Client() {
		return by
	}
	if task != "" {
		return KindAssociate
	}
	switch kind {
	case CheckpointAuto, CheckpointInitial, CheckpointBefore:
		return KindSystem
	}
	return KindPerson
}
