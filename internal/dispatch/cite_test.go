package dispatch_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/library"
	"choir.dev/choiros/internal/webpage"
)

func cites(id, source, claim, excerpt string) contract.Part {
	return use(id, "cite", m{"source": source, "claim": claim, "excerpt": excerpt})
}

// judged answers as a judge that believes no claim about the moon.
func judged(ask string) string {
	if strings.Contains(ask, "moon") {
		return `{"support":"unsupported","reason":"It says nothing about that."}`
	}
	return `{"support":"supported","reason":"It says so."}`
}

const cheese = "https://cheese.example/"

func newLibrary(t *testing.T) *approvalFixture {
	g := newWebHouse(t, &web{pages: map[string]webpage.Page{cheese: {Title: "On cheese", Text: "# On cheese\n\nIt is made of\nmilk, and of nothing else.\n"}}}, 50*time.Millisecond)
	g.model.judge = judged
	return g
}

var research = m{"kind": "research", "goal": "Find out about cheese", "tools": []string{"read", "web_fetch"}}

// TestOnlyWhatASourceSaysIsCited: a citation's words are in what the run read or in the checkpoint, its claim was judged by a
// model that saw nothing else, and all of it is on record and in the result; what is not there is not cited.
func TestOnlyWhatASourceSaysIsCited(t *testing.T) {
	g := newLibrary(t)
	g.model.director = plan(research)
	g.model.associate = steps(cites("c0", cheese, "Cheese is made of milk.", "It is made of milk"), fetches("c1", cheese),
		cites("c2", cheese, "Cheese is made of milk.", "It is made of milk, and of nothing else."), cites("c3", cheese, "Cheese is made of butter.", "It is made of butter, and of nothing else."),
		cites("c4", cheese, "Cheese is from the moon.", "made of milk, and of nothing"), cites("c5", "workspace/test_a.py", "The test runs bash.", `subprocess.run(["bash", "-n", "a.sh"])`),
		cites("c6", "workspace/none.txt", "There is nothing.", "There is nothing there at all."), cites("c7", cheese, "Cheese is made of milk.", "It is made of milk, and of nothing else."),
		use("c8", "write", m{"path": "workspace/a.sh", "content": "echo", "overwrite": true}))
	if rep := g.report(g.submit("What is at " + cheese + "?")); rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, g.story())
	}
	g.quiet()
	got := g.results()[0].Citations
	for _, c := range got {
		if strings.Contains(c.Claim, "butter") {
			t.Fatalf("cited with words that the source does not have: %+v", c)
		}
	}
	said := g.returned()
	for call, want := range map[string]string{"c0": "no task of this run has read it", "c2": "judged to support the claim", "c3": "does not say that, word for word", "c4": "judged NOT to support the claim: It says nothing about that.",
		"c5": "judged to support", "c6": "no such file", "c7": "judged to support"} {
		if !strings.Contains(said[call], want) {
			t.Errorf("%s returns %q, want %q", call, said[call], want)
		}
	}
	if got, called := said["c8"]; called {
		t.Errorf("who researches writes: %q", got)
	}
	if len(got) != 3 || got[0].Support != contract.SupportYes || got[1].Support != contract.SupportNo || got[2].Address != "workspace/test_a.py" {
		t.Fatalf("the result cites %+v", got)
	}
	if c := got[0]; c.Title != "On cheese" || c.Line != 3 || c.Excerpt != "It is made of milk, and of nothing else." || c.Model != "script/judge" || c.Label != library.Label(c.Source, c.Claim, c.Excerpt) {
		t.Errorf("%+v", c)
	}
	if sources := g.events("source.added"); len(sources) != 2 {
		t.Errorf("%d sources are on record\n%s", len(sources), g.story())
	}
}

// TestACitationThatNobodyJudgesIsUnknown: a model that can't be had, or that answers something else, makes nothing supported.
func TestACitationThatNobodyJudgesIsUnknown(t *testing.T) {
	for name, judge := range map[string]func(string) string{"none": nil, "prose": func(string) string { return "supported" }, "other": func(string) string { return `{"support":"surely","reason":"x"}` },
		"more": func(string) string { return `{"support":"supported","reason":"x","sure":true}` }} {
		t.Run(name, func(t *testing.T) {
			g := newLibrary(t)
			g.model.judge = judge
			g.model.director = plan(research)
			g.model.associate = steps(fetches("c1", cheese), cites("c2", cheese, "Cheese is made of milk.", "It is made of milk, and of nothing else."))
			g.report(g.submit("What is at " + cheese + "?"))
			g.quiet()
			if got := g.results()[0].Citations; len(got) != 1 || got[0].Support != contract.SupportUnknown || got[0].Reason == "" {
				t.Errorf("%+v", got)
			}
		})
	}
}

const onCheese = "artifacts/cheese.md"

// defined is the line that a document has for the citation.
var defined = regexp.MustCompile(`(?m)^\[\^c[0-9a-f]{10}\]: “It is made.*$`)

func writes(id, path, content string) contract.Part {
	return use(id, "write", m{"path": path, "content": content, "overwrite": true})
}

// TestAWriterWritesItsDocumentAlone: a task that writes a document changes no other file, and what it wrote becomes a living document.
func TestAWriterWritesItsDocumentAlone(t *testing.T) {
	g := newLibrary(t)
	g.model.director = plan(m{"kind": "write", "goal": "Write about cheese", "document": onCheese, "tools": []string{"read"}})
	g.model.associate = steps(writes("c0", "workspace/a.sh", "echo stolen\n"), use("c1", "edit", m{"path": "choiros/x.css", "old": "red", "new": "blue"}),
		use("c2", "bash", m{"command": "echo x > workspace/a.sh"}), writes("c3", onCheese, "# Cheese\n\nIt is good.\n"))
	if rep := g.report(g.submit("Write about cheese")); rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, g.story())
	}
	g.quiet()
	res := g.results()[0]
	for _, c := range res.Changes {
		if c.Path != onCheese {
			t.Errorf("a writer changed another file: %s", c.Path)
		}
	}
	if res.Verification.Status != contract.VerificationPass || len(res.Verification.Checks) == 0 {
		t.Errorf("%+v", res.Verification)
	}
	if len(g.docs.adopted) != 1 || g.docs.adopted[0] != onCheese+": Cheese\n# Cheese\n\nIt is good.\n" {
		t.Errorf("living documents: %q", g.docs.adopted)
	}
}

// TestADocumentCitesWhatWasRecorded: a document that cites something invented, or says of a citation what was not recorded, goes back
// to its writer, who is told what is wrong.
func TestADocumentCitesWhatWasRecorded(t *testing.T) {
	g := newLibrary(t)
	g.model.director = plan(m{"kind": "write", "goal": "Write about cheese", "document": onCheese, "tools": []string{"web_fetch"}})
	claim, words := "Cheese is made of milk.", "It is made of milk, and of nothing else."
	var told string
	g.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		told = saidTo(req)
		definition := defined.FindString(told)
		label, _, _ := strings.Cut(strings.TrimPrefix(definition, "[^"), "]")
		switch n {
		case 0:
			return parts(fetches("c0", cheese))
		case 1:
			return parts(cites("c1", cheese, claim, words))
		case 2:
			return parts(writes("c2", onCheese, "# Cheese\n\nIt is from the moon.[^c0123456789]\n\n[^c0123456789]: “It is from the moon.” — [On cheese](<"+cheese+">)\n"))
		case 4: // what it was told is wrong
			return parts(writes("c4", onCheese, "# Cheese\n\nIt is made of milk.[^"+label+"]\n\n"+definition+"\n"))
		}
		return parts(use("fin"+string(rune('0'+n)), "finish", m{"status": "ok", "summary": "Did it."}))
	}
	if rep := g.report(g.submit("Write about " + cheese)); rep.Status != contract.RunDone {
		t.Fatalf("%+v\n%s", rep, g.story())
	}
	g.quiet()
	res := g.results()[0]
	if res.Repairs != 1 {
		t.Errorf("a document cites what was never recorded: %+v", res.Verification)
	}
	if !strings.Contains(told, "[^c0123456789] is no citation of this computer") {
		t.Errorf("the writer is told\n%s", told)
	}
	if res.Verification.Status != contract.VerificationPass {
		t.Errorf("%+v", res.Verification)
	}
}

// TestADocumentHasOneWriter: two tasks for one document are refused together, with what to do.
func TestADocumentHasOneWriter(t *testing.T) {
	g := newLibrary(t)
	var told string
	g.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		told = saidTo(req)
		return plan(m{"kind": "write", "goal": "One", "document": onCheese, "tools": []string{"read"}}, m{"kind": "write", "goal": "Two", "document": onCheese, "tools": []string{"read"}})(n, req)
	}
	g.report(g.submit("Write about cheese"))
	if len(g.results()) != 0 || !strings.Contains(told, "tasks[1].document: "+onCheese+" is being written by another task") {
		t.Errorf("%d results; the Director is told\n%s", len(g.results()), told)
	}
}

// TestASummaryIsOneTask: what is to be summarised goes to one writer, whose document has its name, with nothing planned.
func TestASummaryIsOneTask(t *testing.T) {
	g := newLibrary(t)
	g.model.director = func(int, contract.TurnRequest) []contract.Part {
		t.Error("a Director plans it")
		return parts(use("d", "report", m{"status": "failed", "summary": "no"}))
	}
	for _, p := range []dispatch.Prompt{{Route: contract.RoutePlan}, {Continues: contract.NewID()}} {
		p.By, p.Text, p.Summarise = contract.Person("u"), "summarise "+cheese, cheese
		if _, _, err := g.d.Submit(t.Context(), p); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	document := library.SummaryPath(cheese)
	g.model.associate = steps(writes("c0", document, "# Cheese\n\nIt is good.\n"))
	run, _, err := g.d.Submit(t.Context(), dispatch.Prompt{By: contract.Person("u"), Text: "summarise " + cheese, Summarise: cheese})
	if err != nil {
		t.Fatal(err)
	}
	if rep := g.report(run); rep.Status != contract.RunDone || !strings.Contains(rep.Summary, document) {
		t.Fatalf("%+v\n%s", rep, g.story())
	}
}

// TestAWriterPublishesItsDocumentAlone: who writes a document and goes on from a tree in which other files were changed does not publish
// these, which nobody checked, and its document is checked all the same.
func TestAWriterPublishesItsDocumentAlone(t *testing.T) {
	g := newLibrary(t)
	g.model.director = goingOn(t, agent("begin"), m{"kind": "write", "goal": "go on", "document": onCheese, "tools": []string{"read"}})
	g.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		if prompted(req, "go on") {
			return steps(writes("w", onCheese, "# Cheese\n\nIt is from the moon.[^c0123456789]\n"))(n, req)
		}
		return [][]contract.Part{parts(writes("c0", "workspace/b.txt", "half of it\n")), parts(use("f", "finish", m{"status": "needs_input", "summary": "?", "question": "Go on?"}))}[min(n, 1)]
	}
	g.report(g.submit("go"))
	g.quiet()
	if got := readFile(g.ws.live(), "workspace/b.txt"); len(got) > 0 {
		t.Errorf("a writer published another file: %q", got)
	}
	if got := readFile(g.ws.live(), onCheese); len(got) > 0 {
		t.Errorf("a document was published that cites what was never recorded: %q", got)
	}
	res := g.results()
	if v := res[len(res)-1].Verification; v.Status != contract.VerificationFail || !strings.Contains(v.Checks[0].Command.Stdout, "workspace/b.txt") {
		t.Errorf("%+v", v)
	}
}

// TestAPageIsCitedByEitherAddress: a page is cited by the address that was asked for and by the one that answered, which web_fetch shows,
// and both times it is one source.
func TestAPageIsCitedByEitherAddress(t *testing.T) {
	const moved = "https://cheese.example/moved"
	g := newWebHouse(t, &web{pages: map[string]webpage.Page{cheese: {From: moved, Text: "It is made of\nmilk, and of nothing else.\n"}}}, 50*time.Millisecond)
	g.model.judge = judged
	g.model.director = plan(research)
	words := "It is made of milk, and of nothing else."
	g.model.associate = steps(fetches("c1", cheese), cites("c2", cheese, "Cheese is made of milk.", words), cites("c3", moved, "Cheese has nothing else.", words))
	g.report(g.submit("What is at " + cheese + "?"))
	g.quiet()
	if got := g.results()[0].Citations; len(got) != 2 || got[0].Source != got[1].Source || got[1].Address != moved {
		t.Errorf("%+v\n%s", got, g.returned()["c3"])
	}
}

// TestAPageHasItsOwnAddress: the program that reads pages can't have one pass for another host's.
func TestAPageHasItsOwnAddress(t *testing.T) {
	g := newWebHouse(t, &web{pages: map[string]webpage.Page{cheese: {From: "https://nature.example/", Text: "It is made of\nmilk, and of nothing else.\n"}}}, 50*time.Millisecond)
	g.model.judge = judged
	g.model.director = plan(research)
	g.model.associate = steps(fetches("c1", cheese), cites("c2", cheese, "Cheese is made of milk.", "It is made of milk, and of nothing else."))
	g.report(g.submit("What is at " + cheese + "?"))
	g.quiet()
	if got := g.results()[0].Citations; len(got) != 0 {
		t.Errorf("a page of one host is cited as another's: %+v", got)
	}
}

// TestAFileWithAnyNameIsCited, whatever it calls itself.
func TestAFileWithAnyNameIsCited(t *testing.T) {
	g := newLibrary(t)
	put(g.ws.live(), "workspace/notes.md", []byte("# No\x1b[31mtes\n\nIt is made of milk, and of nothing else.\n"))
	put(g.ws.live(), "workspace/a\tb.txt", []byte("It is made of milk, and of nothing else.\n"))
	g.model.director = plan(research)
	words := "It is made of milk, and of nothing else."
	g.model.associate = steps(cites("c1", "workspace/a\tb.txt", "Cheese is made of milk.", words), cites("c2", "workspace/notes.md", "Cheese is made of milk.", words))
	g.report(g.submit("What is in notes.md?"))
	g.quiet()
	if res := g.results()[0]; res.Status != contract.ResultOK || len(res.Citations) != 1 || strings.ContainsRune(res.Citations[0].Title, '\x1b') {
		t.Errorf("%s: %s\n%+v\n%q\n%q", res.Status, res.Summary, res.Citations, g.returned()["c1"], g.returned()["c2"])
	}
}

// TestAVerdictStands shows that the same words of the same source for the same claim are judged by one run alone, unless it could
// not tell: a later run, whose judge can't, is told the verdict that is on record.
func TestAVerdictStands(t *testing.T) {
	g := newLibrary(t)
	g.docs.cited = func() (all []contract.Citation) {
		for _, p := range g.events("citation.recorded") {
			all = append(all, p.(*contract.CitationRecorded).Citation)
		}
		return all
	}
	g.model.director = plan(research)
	g.model.associate = steps(cites("c5", "workspace/test_a.py", "The test runs bash.", `subprocess.run(["bash", "-n", "a.sh"])`))
	asked := 0
	answers := []string{"I can't tell", judged(""), "I can't tell"}
	g.model.judge = func(string) string { asked++; return answers[asked-1] }
	for i, want := range []contract.Support{contract.SupportUnknown, contract.SupportYes, contract.SupportYes} {
		g.report(g.submit(strings.Repeat("Again: ", i) + "what does the test run?"))
		g.quiet()
		res := g.results()
		if got := res[len(res)-1].Citations; len(got) != 1 || got[0].Support != want {
			t.Errorf("run %d cites %+v, want %s", i, got, want)
		}
	}
	if asked != 2 {
		t.Errorf("it was judged %d times", asked)
	}
}
