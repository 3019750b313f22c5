package defence

// The model, for agent programs in boxes.
const (
	InwardToken    Name = "inward.token"    // row 17: only who knows the box's token asks the model in its name
	InwardGrant    Name = "inward.grant"    // row 14: a box that was not granted the model is not answered
	InwardModel    Name = "inward.model"    // row 45: which model answers a program is the host's choice
	InwardParallel Name = "inward.parallel" // row 31: so many calls of a box at a time and no more
)
