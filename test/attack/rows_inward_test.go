package attack_test

import "choir.dev/choiros/internal/defence"

// inwardRows are attacks of programs in boxes on the model that they may ask.
var inwardRows = []Row{
	beside(14, "programs of a task that was not granted the model ask it", "dispatch", "TestWithoutTheGrantNoProgramAsks", `a box without the grant is answered the model answers .*`, defence.InwardGrant),
	beside(17, "a program asks the model with a token that is not its box's", "gateway/inward", "TestOnlyTheBoxsTokenIsAnswered", `a box is answered with (no token|another box's|nearly right|another kind|another key) .*`, defence.InwardToken),
	beside(31, "a box's programs have any number of model calls open", "gateway/inward", "TestSoManyCallsOfABoxAtATime", `a box has \d+ calls open at a time`, defence.InwardParallel),
	beside(45, "a program names the model that its run pays for", "gateway/inward", "TestTheHostsModelAnswers", `a program chose the model ".*"`, defence.InwardModel),
}
