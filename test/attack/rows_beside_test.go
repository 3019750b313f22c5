package attack_test

import (
	"net"
	"os/exec"
	"testing"

	"choir.dev/choiros/internal/defence"
)

// lacksSecondLoopback returns a reason if a browser would try one address only.
func lacksSecondLoopback(t *testing.T) string {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		return "loopback"
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	return ""
}

// lacksNPM returns a reason if nothing here can install JavaScript packages.
func lacksNPM(*testing.T) string {
	if _, err := exec.LookPath("npm"); err != nil {
		return "npm"
	}
	return ""
}

// besideRows are attacks whose two ends can be played only by the package that defends.
var besideRows = []Row{
	beside(22, "a desktop, or who holds a token that was handed out, answers an approval", "control", "TestOnlyTheConsoleAnswersApprovals",
		`a (token that was handed out|link made with such a token): 200 .*`, defence.ApprovalConsole),
	beside(23, "somebody asks methods of a computer that they are no member of", "control", "TestForeignComputersAreNotThere",
		`somebody else's computer answers \d+`, defence.GrantMember),
	beside(23, "somebody else's computers are listed", "control", "TestForeignComputersAreNotThere",
		`somebody else's computer is listed: .*`, defence.GrantListed),
	beside(23, "a viewer changes something", "control", "TestMembersDoWhatTheirRoleAllows",
		`a viewer asks .* and is answered .*`, defence.GrantRole),
	beside(23, "an account reaches the machine's secrets without the power for it", "control", "TestTheMachineIsItsAdministrators",
		`an account without .* asks .* and is answered .*`, defence.GrantPower),
	beside(23, "a token that was made for few things does another", "control", "TestMethodsAnswerAsTheTableSays",
		`.* and a token for .* asks .* and is answered .*`, defence.GrantScope),
	beside(30, "a token is used after its end", "identity", "TestTokensHaveAScopeAndAnEnd",
		`a token is good after its end: .*`, defence.GrantExpiry),
	beside(23, "who may invite accounts makes one that may more", "control", "TestNobodyGivesWhatTheyHaveNot",
		`a power was given by who has not got it.*`, defence.GrantGiven),
	beside(23, "a member reads what another member's command says", "control", "TestACommandsOutputIsItsSessions",
		`another member reads a command's output: .*`, defence.OutputSession),
	beside(33, "a client listens to what is another session's alone", "bus", "TestClientSubscribesToNothingElse",
		`subscribe to stream\.[a-z0-9]+\.theirs\.>.*`, defence.BusStreams),
	beside(33, "a run's words reach a session of the computer that does not follow it", "control", "TestARunsWordsAreTheirFollowers",
		`a run's words went to .*`, defence.StreamFollowers),
	beside(24, "an invitation to a computer is used twice", "identity", "TestInvitations",
		`an invitation is used twice: .*`, defence.IdentityInvited),
	beside(30, "a stream goes on after its member was taken out", "control", "TestWhoLeavesLosesWhatIsUnderWay/is_taken_out",
		`the (frame|events) of who is taken out goes on`, defence.GrantCut),
	beside(30, "a command goes on after its member was taken out", "control", "TestWhoLeavesLosesWhatIsUnderWay/is_taken_out",
		`the command of who is taken out goes on`, defence.GrantCommands),
	lacking(beside(20, "another user of the machine listens where the browser looks for the console first", "cmd/choir", "TestAttack20_ThePortIsOursWhereverBrowsersLook",
		`somebody else can listen at .*: <nil>`, defence.ListenBoth), lacksSecondLoopback),
	beside(24, "every program of the machine reads the claim link among the browser's arguments", "cmd/choir", "TestTheBrowsersArgumentHoldsNoToken",
		`the token is an argument: [^\x00]*a-secret-token`, defence.ClaimArgv),
	beside(26, "what a model, box or provider said types into the terminal of who reads it", "cli", "TestErrorsAreText",
		`\[U\+001B .* in ".*`, defence.TerminalText),
	beside(26, "a file's name is a command, which completion writes into the line of who looks for the file", "cli", "TestNoNameIsACommand",
		`offered is "workspace/\$\(touch`, defence.CompletedNames),
	beside(31, "calls at the same time spend more than a budget has", "gateway", "TestParallelCallsCannotOverrunABudget",
		`used \d+ of 2000 tokens`, defence.BudgetReserve),
	beside(31, "a provider counts less than nothing, which lowers what was spent", "gateway", "TestModelThatMisbehaves/negative_usage",
		`usage \{.*TokensIn:-\d+.*`, defence.BudgetCredible),
	beside(31, "a provider counts more than a number holds", "gateway", "TestModelThatMisbehaves/overflowing_usage",
		`usage \{.*TokensIn:922337203685477\d+.*`, defence.BudgetCredible),
	beside(41, "one layer of a tree is exchanged for another of it while the box is opened", "sandbox/local", "TestLayersExchanged",
		`the box was opened on another layer than the one that was looked at`, defence.HostSame),
	beside(42, "what nobody answers is allowed", "dispatch", "TestSilenceDenies",
		`answers \[.*`, defence.ApprovalDefault),
	beside(42, "a run buries its user in questions", "dispatch", "TestQuestionsAreCapped",
		`8 questions are open`, defence.ApprovalCap),
	beside(43, "a chain of folders is too deep to be removed", "sandbox/local/hostfs", "TestRemoveWithFewDescriptors",
		`files that are no longer needed can't be removed and stay in .*`, defence.RemoveLifting),
	beside(45, "a prompt raises its own budget", "dispatch", "TestAPromptCantRaiseTheBudget",
		`a prompt with .* has \{WallS:86400 ToolCalls:1000 .*`, defence.BudgetOwner),
	beside(45, "a browser's session floods the log with events", "control", "TestClientsCantFloodTheLog/a_session's_events",
		`51 were taken`, defence.ClientFlood),
	beside(45, "a computer's pages flood the log with bytes in a day", "control", "TestClientsCantFloodTheLog/a_day's_bytes",
		`51 were taken`, defence.ClientFlood),
	beside(39, "another user of the machine has the number and the port of a control plane that was killed, and is told the token", "client", "TestDiscover",
		`one that was killed, and was .*: <nil>`, defence.RuntimeProcess),
	beside(39, "another user of the machine made the data directory, and has the keys in it used", "datadir", "TestADataDirectoryIsItsOwnersAlone",
		`-rwxrwxrwx became -rwxrwxrwx|drwxrwxrwx.*|another user's: <nil>`, defence.DataPrivate),
	lacking(beside(40, "what a lock file names runs its own script where there is a network", "computer/boxes", "TestAttack40_NothingThatIsFetchedRunsWhereItIsFetched",
		`a package's script ran where the packages are fetched`, defence.InstallQuiet), lacksNPM),
	lacking(beside(40, "a package's own lock names a repository, which says what git is", "computer/boxes", "TestAttack40_NothingFromGitRunsWhereItIsFetched",
		`what a repository calls git ran where the packages are fetched`, defence.InstallQuiet), lacksNPM),
	beside(40, "a check's box writes into the dependencies that the next one gets", "computer/boxes", "TestAttack40_AChecksBoxWritesOverACopy",
		`Target:/computer/p/node_modules Mode:rw .*`, defence.CacheThrown),
	beside(40, "a computer has the packages of a lock installed in its own way, and another one with the same lock gets them so", "computer/boxes", "TestAttack40_WhatEverybodyGetsIsNamedByAllThatSteersIt",
		`one that leaves some out gets what .* left for all`, defence.SharedInputs),
	beside(40, "a package's script writes over what another computer gets", "computer/boxes", "TestAttack40_NoPackagesCodeRanOverWhatAllGet",
		`a package's script wrote what all computers get`, defence.SharedScripts),
	beside(40, "a computer hinders its own installation, and another one gets what is left of it", "computer/boxes", "TestAttack40_WhatAConnectionWasTakenFromIsNobodyElses",
		`a tree that lacks a package is shared: .*`, defence.SharedComplete),
	beside(40, "a computer has its installation fail, and with it another one's of the same", "computer/boxes", "TestAttack40_WhatHindersOneComputerHindersNoOther",
		`what hindered one hinders another: .*`, defence.SharedFailure),
	beside(40, "what all computers get leads out of itself, to what is another one's", "computer/boxes", "TestAttack40_NothingSharedLeadsOut",
		`a link at .* to .* is shared: .*`, defence.SharedPlain),
	beside(40, "what was installed is changed on the disk, and computers go on with it", "computer/boxes", "TestAttack40_WhatIsNotWhatWasKeptIsMadeAnew",
		`what is kept is used though it changed: .*`, defence.SharedWhole),
	beside(45, "a page that floods the log takes pause and stop out of its user's hands", "control", "TestAttack45_AFloodTakesNothingOutOfItsUsersHands/a_minute",
		`/pause: .*"status":429.*`, defence.ClientGovern),
	beside(46, "a page of the shell ends the program that looks at it, and has painted by that", "shell", "TestAttack46_WhoEndsTheCheckHasNotPassedIt",
		`a page that ended the check came to 0`, defence.CheckRendered),
	beside(47, "a page that is broken by itself has the desktop called broken for everyone", "control", "TestAttack47_APageSpeaksForItself",
		`one page speaks for all: .*`, defence.PageAlone),
	beside(47, "a page has verified work taken back", "computer", "TestAttack47_VerifiedWorkDoesNotGoBackByItself",
		`verified work went back unasked: .*`, defence.UnverifiedOnly),
	beside(47, "a page has a user's edit taken back with a task's", "computer", "TestAttack47_UsersEditsAreNeverTakenBack",
		`a user's edit went back unasked: .*`, defence.UsersEditsStay),
	beside(47, "a page that has not got the newest source has it called well", "computer", "TestAStalePageIsNoProof",
		`the desktop is broken: false, by run "", .*; want true.*`, defence.PageCurrent),
	beside(49, "an older copy of the history, or another one, takes its place", "computer", "TestAttack49_AnotherHistoryIsNotTakenForWhole",
		`an older history was taken for whole`, defence.HistoryLog),
	beside(49, "the name of the newest checkpoint is gone, and a new history would be begun", "workspace/keeper/engine", "TestADamagedNewestCheckpoint/the_branch_is_gone",
		`a checkpoint on damage: <nil>`, defence.HistoryBegun),
	beside(49, "the newest checkpoint is damaged, and would be gone on from", "workspace/keeper/engine", "TestADamagedNewestCheckpoint/HEAD^{tree}_is_missing",
		`a checkpoint on damage: <nil>`, defence.HistoryWhole),
	beside(48, "a command writes on though nobody reads, until the page or its memory ends", "control/service", "TestAttack48_OutputWaitsForItsReader",
		`it went on to \d+ bytes that nobody had read`, defence.OutputWindow),
	beside(51, "a call that a restart interrupted goes to the model without its result", "dispatch", "TestAttack51_NoCallGoesWithoutItsResult",
		`calls went to the model without their results: .*`, defence.RunReturns, defence.LoopReturns),
	beside(51, "a question is asked again after a restart", "dispatch", "TestAttack51_AQuestionIsAskedOnce",
		`it was asked 2 times`, defence.RunQuestions, defence.RunAsked),
	byChance(beside(51, "half of what was stored together is remembered after a kill", "ledger", "TestACallIsStoredWholeOrNotAtAll",
		`call .*: [12] of 3 drafts are stored`, defence.LogBatch)),
	beside(54, "an approval is given for another act than the one that was shown", "dispatch", "TestATaskWaitsForAPerson/run",
		`an answer for another act: <nil>`, defence.ApprovalDigest),
	beside(54, "an approval that was answered is answered again", "dispatch", "TestATaskWaitsForAPerson/deny",
		`a second answer: <nil>`, defence.ApprovalOnce),
	beside(55, "a model that a file talked into it has a rule of the file's kept as the user's", "dispatch", "TestAttack55_OnlyAPersonsWordsAreKept",
		`the computer keeps \[Remember: always run curl .*`, defence.MemoryWords),
}
