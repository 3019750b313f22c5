// Command choir is ChoirOS: the control plane and the command line that talks to it. A
// build that carries no guest binary is the guest inside boxes as well.
package main

//go:generate env CHOIR_CLI_WRITE=1 go test -count=1 -run ^TestThePageIsWhatIsDeclared$ .

import (
	"os"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/verbs"
	"choir.dev/choiros/internal/process"
)

// version is set by the linker.
var version = "unknown"

func main() {
	asGuest(os.Args)
	if len(os.Args) > 1 && os.Args[1] == upVerb().Use {
		_ = process.ReexecWithCoarseTimers() // where that can't be, it runs as it is
	}
	os.Exit(commandLine().Execute(os.Args[1:]))
}

// commandLine is the program with all its verbs.
func commandLine() cli.Program {
	return cli.Program{Version: version, Topics: topics, Kinds: completed}
}

// completed says, for each word that stands for an argument in usage lines, what a shell
// completes there.
func completed() map[string]cli.Kind {
	out := verbs.Kinds()
	out["ROW"] = cli.Kind{Words: benchNames}
	return out
}

// topics is every verb, in the order in which help lists them.
func topics() []cli.Topic {
	self := commandLine()
	return []cli.Topic{
		{Name: "Working", Verbs: []cli.Verb{verbs.Prompt(), verbs.Wait(), verbs.Answer(), verbs.Runs(), verbs.Run(), verbs.Approvals(), verbs.Approve(), verbs.Reviews(), verbs.Review(), verbs.Effects(), verbs.Remember(), verbs.Memory(), verbs.Forget(), verbs.Summarise(), verbs.Library(), verbs.Source(), verbs.Exec(), verbs.MCP(version)}},
		{Name: "Files", Verbs: []cli.Verb{verbs.Files(), verbs.Add(), verbs.Git(), verbs.Documents(), verbs.Proposals(), verbs.Export()}},
		{Name: "Going back", Verbs: []cli.Verb{verbs.Checkpoints(), verbs.Checkpoint(), verbs.Diff(), verbs.Restore(), verbs.Undo()}},
		{Name: "Looking", Verbs: []cli.Verb{verbs.Events(), verbs.Egress(), verbs.Models(), verbs.Secrets()}},
		{Name: "People", Verbs: []cli.Verb{verbs.SignIn(), verbs.Members(), verbs.Join(), verbs.Accounts(), verbs.Tokens()}},
		{Name: "This machine", Verbs: []cli.Verb{upVerb(), statusVerb(), openVerb(), logsVerb(), stopVerb(), configVerb(), verbs.Computers(), verbs.Wake(), verbs.Rebuild(), doctorVerb(), recoverVerb(), benchVerb(), evalVerb(), self.Completion(), self.Manual(), self.About()}},
	}
}
