package contract

// CheckpointAuthor is who made a checkpoint: the actor of its event, where somebody asked
// for it. The host makes those of tasks and those that nobody asks for, and appended the
// events of all before events said who asked; for these kind and task decide. Lists and
// live views use this function, and the desktop is tested with the same cases
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
