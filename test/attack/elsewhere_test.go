package attack_test

import "choir.dev/choiros/internal/defence"

const (
	whyBrowser = "it takes a browser, whose page is driven from JavaScript"
	whyPower   = "what is attacked is time and power, not a check that can be switched"
	whyRefused = "it is a parser's strictness, tried with many inputs beside the code"
	whySeams   = "it takes that package's own playing of both ends"
	whyWhole   = "it takes a whole computer and a model, and no single check can be switched off to let it through"
)

// elsewhere lists parts of rows that other tests show. TestTableIsTrue checks that these tests
// exist.
var elsewhere = []Elsewhere{
	{2, "odd bytes in a SOCKS host, in a real box", "test/attack/egress_test.go", "TestRow02NULInHost", whyRefused},
	{3, "a ClientHello over many records, in odd lengths", "internal/egress/hello_internal_test.go", "TestReadHello", whyRefused},
	{6, "every private block, every spelling, and answers that change", "test/attack/egress_test.go", "TestRow06PrivateAddresses", whyRefused},
	{7, "each tunnel is under a rule of its box, decided on record and measured", "internal/egress/proxy_test.go", "TestDecisionThatCannotBeRecordedRefuses", "the channel to an allowed host can't be closed, only kept narrow and seen"},
	{9, "a source of policy that fails denies everything", "internal/egress/sources_test.go", "TestASourceThatFailsDeniesEverything", whySeams},
	{10, "case, trailing dots, punycode, empty labels", "internal/egress/target_test.go", "TestParseTarget", whyRefused},
	{11, "races against the guest's reader", "test/attack/box_test.go", "TestRow11Paths", "a race is not a switch"},
	{12, "filters, fsmonitor, ssh commands, submodules and bombs: git looks at them in commands that the keeper never runs", "test/attack/rows_git_test.go", "TestRow12TheKeepersGit", "there is no check to switch off: that the commands are not run is the defence, and the test fails with the first one"},
	{12, "all of it at once, through the whole binary", "test/attack/row12_test.go", "TestRow12Repositories", whyWhole},
	{12, "a remote in a workspace grants nothing", "test/attack/row12_test.go", "TestRow12RemoteGrantsNothing", whyWhole},
	{12, "names, modes, links, bombs and large files that no checkpoint has, pushed into a computer's own history", "internal/workspace/keeper/engine/pushed_test.go", "TestWhatAPushBringsIsChecked", whyRefused},
	{12, "a push there into what lies in a folder that was a link", "internal/workspace/keeper/engine/pushed_test.go", "TestAPushIsAParentOfItsCheckpoint", whySeams},
	{12, "bundles, packs and indexes that grow", "test/attack/row12_bombs_test.go", "TestRow12Bombs", whySeams},
	{13, "a line of half a gigabyte, and a terminal full of yes", "test/attack/box_test.go", "TestRow13Exhaustion", "the bound is the shape of the stream: there is no unbounded way to switch to"},
	{14, "what is left behind dies with its box", "test/attack/box_test.go", "TestRow14Guest", "the process namespace that kills it is what makes a box"},
	{15, "huge frames, held streams, another box's handler, results that no box may post", "test/attack/tether_test.go", "TestRow15Tether", "what stops it is also the multiplexer's own arithmetic"},
	{15, "the id of an event to come", "test/attack/row15_test.go", "TestRow15DerivedIDs", whyWhole},
	{16, "another user, source, time, spelling, size or type", "test/attack/tether_test.go", "TestRow16Events", whyRefused},
	{19, "the sandbox engine's version", "internal/sandbox/local/doctor_test.go", "TestDoctor", "there is no runc and no VMM here to be old"},
	{20, "a foreign page opens no socket and reads nothing", "test/browser/attacks.test.mjs", "20: a foreign page opens no socket and reads nothing", whyBrowser},
	{21, "the dev server's paths, in a real dev server", "test/browser/attacks.test.mjs", "21: the dev server shows nothing but the desktop’s source", whyBrowser},
	{22, "passkeys, cookies, frames, popups, images, forms, WebRTC", "test/browser/attacks.test.mjs", "22: nothing of a desktop outlives it or leaves it", whyBrowser},
	{24, "one of many claims wins", "internal/identity/identity_test.go", "TestOneOfManyClaimsWins", "a race is not a switch"},
	{32, "a model or provider that misbehaves", "internal/gateway/gateway_test.go", "TestModelThatMisbehaves", whySeams},
	{34, "kill -9 anywhere, two control planes", "test/chaos/random_test.go", "TestRandomKills", whyPower},
	{35, "acknowledged means synced", "internal/ledger/syscall_test.go", "TestAcknowledgedMeansSynced", whyPower},
	{46, "twenty-nine cheating models; dependencies that only the task has; a failed task and a harmless one", "test/e2e/cheats_test.go", "TestCheatsAreNotVerified", "the same defences as in the matrix, many ways round each"},
	{46, "a page of the shell ends the program that looks at it", "internal/shell/render_test.go", "TestAttack46_APageDoesNotJudgeItself", "it runs the script in node, with the modules of this repository: that the host asks for its word is a row"},
	{39, "the key is nowhere else: boxes, their processes, files, archives, logs", "test/e2e/canary_test.go", "TestTheKeyIsNowhere", "nothing puts it there that could be switched on; in what a run keeps, the matrix tries it"},
	{41, "every source, layer and upper of every kind of box, before and after it is opened", "internal/sandbox/local/swap_internal_test.go", "TestSourcesSwappedForLinks", "it stops the driver between its look and the mount"},
	{41, "every target, in every kind of tree", "internal/sandbox/local/swap_internal_test.go", "TestTargetsThatAreLinks", "the same defence, in many places"},
	{43, "a chain of 22,000 folders is removed, also by the next process", "internal/sandbox/local/hostfs/remove_test.go", "TestRemoveDeep", "the same defence, at a depth that takes half a minute"},
	{43, "what can't be read, lies too deep or changes keeps nothing else out of an archive of the computer", "internal/fleet/export_test.go", "TestAttack43_NothingKeepsTheRestOutOfAnArchive", "what is tried is that it goes on, which is no check"},
	{43, "ten thousand names, or names that are no text, hide a file from the lists or keep a list from ending", "internal/workspace/keeper/engine/list_test.go", "TestAttack43_NoNameHidesAnother", "what is tried is an order, which is no check"},
	{43, "what can't be removed is in nobody's way", "internal/sandbox/local/hostfs/remove_test.go", "TestWhatCanNotBeRemovedIsTold", "it takes another user's files"},
	{7, "what passes a tunnel is on record", "internal/egress/meter_test.go", "TestWhatPassesATunnelIsOnRecord", "the channel to an allowed host can't be closed, only kept narrow and seen"},
	{42, "only what a person allowed on the console is reached, by one task", "test/e2e/approvals_test.go", "TestApprovals", "what is tried is that it goes on with the answer; without one, or denied, the matrix tries it"},
	{25, "output with control characters is text in the shell", "desktop/test/text.test.ts", "is never more than its text, whatever that is", "the defence is how the shell renders, which lives in the desktop's source"},
	{25, "what a page may run and load, in a browser", "test/browser/policy.test.mjs", "styles of the live page", whyBrowser},
	{26, "what models, boxes and providers said, in every verb's output (the desktop has no terminals yet, and shows output as text)", "internal/cli/terminal/text_test.go", "TestAttack26_WhatIsPrintedIsTextToATerminal", "the same defence, in many verbs of the binary"},
	{36, "events that are unknown, out of place or do not decode", "internal/state/state_test.go", "TestPoisonIsKeptAndProjectionGoesOn", whyRefused},
	{36, "a gap in the log", "internal/state/state_test.go", "TestAGapStopsProjectionAndWaiters", whyRefused},
	{36, "archives that are hostile in other ways", "internal/workspace/files_test.go", "TestAddRefusesHostileArchives", whySeams},
	{48, "a command that never stops writing", "test/browser/hurt.test.mjs", "a command that never stops writing", whyBrowser},
	{48, "an endless loop in render", "test/browser/hurt.test.mjs", "an endless loop in render", "the same defence, through the whole binary: what was typed is in the page that takes its place"},
	{49, "more kinds of damage to a log", "internal/ledger/chain_test.go", "TestALogIsHeldAgainstItsHead", "the same defences, each kind of damage"},
	{49, "a computer with a damaged newest checkpoint starts, and goes on from the one before it", "internal/workspace/workspace_test.go", "TestAComputerWithADamagedHistoryStarts", "what is tried is that it goes on, which is no check"},
	{50, "a prompt of a megabyte is offered as a file", "test/browser/hurt.test.mjs", "a prompt of a megabyte", whyBrowser},
	{51, "a death after every event", "internal/dispatch/recover_test.go", "TestDeathAfterEveryEvent", whyPower},
	{52, "the file that leads the browser there is its owner's alone, and goes with choir", "test/e2e/secrets_test.go", "TestTheClaimTokenIsInNoArgument", "the same defence as in the matrix, and what takes the argument's place"},
	{52, "commands' secrets are in no checkpoint's message and not in choir's own log", "test/e2e/secrets_test.go", "TestCommandsAreRecordedWithoutSecrets", "the same defence as in the matrix, in more places"},
	{53, "what leaves through an allowed host is measured and on record", "internal/egress/meter_test.go", "TestWhatPassesATunnelIsOnRecord", "the channel to an allowed host can't be closed, only kept narrow and seen"},
}

// OneDefence is a defence without a row in the matrix, with the test that fails without it.
type OneDefence struct {
	Name defence.Name
	File string
	Test string
}

var otherDefences = []OneDefence{
	// Both ends are the box and its guest; every driver's conformance test checks it.
	{defence.GuestClear, "internal/sandbox/local/local_test.go", "TestConformance"},
	{defence.GuestFresh, "internal/sandbox/local/local_test.go", "TestConformance"},
	// With the switch off, all processes of the machine's user would be stuck in the middle of the
	// suite.
	{defence.BoxEpoll, "test/e2e/shared_test.go", "TestOneCommandTakesAllWatches"},
	{defence.BoxFiles, "internal/sandbox/local/shared_internal_test.go", "TestOneBoxOpensAllFiles"},
	{defence.BoxSockets, "internal/sandbox/local/sockets_internal_test.go", "TestSocketsOfABoxAreBounded"},
	{defence.BoxAllSockets, "internal/sandbox/local/sockets_internal_test.go", "TestOneBoxTakesTheMemoryOfSockets"},
	{defence.BoxNetlink, "internal/sandbox/local/sockets_internal_test.go", "TestOneBoxTakesMemoryByNetlink"},
	{defence.BoxUnderWay, "internal/sandbox/local/underway_internal_test.go", "TestOneBoxPassesAllDescriptors"},
	{defence.BoxLocks, "internal/sandbox/local/locks_internal_test.go", "TestOneBoxTakesAllLocks"},
}
