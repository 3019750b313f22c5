package defence

// What is taken for whole, and for new (internal/ledger, recovery, dispatch,
// computer, workspace/keeper).
const (
	LogHead      Name = "log.head"         // row 49: a log ends where its head says that it ended
	LogChain     Name = "log.chain"        // row 49: an event carries the link of the one before it
	LogEvidence  Name = "log.evidence"     // row 49: a log has what its state was made from
	DataParts    Name = "data.parts"       // row 49: what was there and is gone is missing, not new
	HistoryLog   Name = "history.log"      // row 49: the history ends where the log knows that it ended
	HistoryBegun Name = "history.begun"    // row 49: a history whose newest name is gone is no beginning
	HistoryWhole Name = "history.whole"    // row 49: a newest checkpoint that can't be read is not gone on from
	StoreAccount Name = "data.account"     // row 49: the store's key is the one that the store was made with
	LogBatch     Name = "log.batch"        // row 51: the drafts of one call are stored together
	RunReturns   Name = "run.returns"      // row 51: a model that is asked again hears of each call what became of it
	LoopReturns  Name = "loop.returns"     // row 51: the same, by the loop that asks
	RunQuestions Name = "run.question-ids" // row 51: a question has the id of the call that asks it
	RunAsked     Name = "run.asked"        // row 51: what was asked in the same words is not asked again
)
