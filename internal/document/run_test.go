package document_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/attempt"
	"choir.dev/choiros/internal/document"
	"choir.dev/choiros/internal/run"
)

// blueRun is a run that has worked for some time.
func blueRun() *run.Run {
	failed := &contract.AssociateResult{
		Attempt: 2, Status: contract.ResultFailed, Summary: "the check failed", Changes: []contract.Change{{Path: "a.css", Op: contract.ChangeModified, Added: 3, Removed: 1}},
		Commands:     []contract.Command{{Argv: []string{"npm", "test"}, ExitCode: 1, DurationMS: 1500, Stderr: "boom\n```\n## Plan\n"}},
		Verification: contract.Verification{Profile: contract.VerifySmoke, Status: contract.VerificationFail},
		Usage:        contract.Usage{ToolCalls: 3, TokensIn: 60, TokensOut: 20, CostUSD: 0.0120},
	}
	return &run.Run{
		Prompt: contract.PromptSubmitted{Text: "make it blue"},
		Head: run.Head{Objective: "A blue desktop.", Status: contract.RunWorking,
			Plan: []contract.PlanItem{{Text: "look", Status: contract.PlanDone}, {Text: "edit", Status: contract.PlanActive}}},
		Tasks: []*run.Task{{Request: contract.DirectorTask{ID: "t", Goal: "edit the theme", Kind: contract.KindAgent}, Now: attempt.Attempt{Number: 2},
			Newest: failed, Results: map[int]contract.AssociateResult{2: *failed}}},
		Turns:     []contract.TurnRecorded{{Usage: contract.Usage{TokensIn: 40, CostUSD: 0.0003}}},
		Questions: []run.Question{{Question: contract.Question{Text: "Which blue?", Choices: []string{"navy", "sky"}}}},
	}
}

// blue returns the sections of its document.
func blue() document.Sections { return document.SectionsOf(blueRun(), nil) }

func TestARunIsRendered(t *testing.T) {
	got := document.RenderRun("Blue", blue())
	for _, want := range []string{
		"# Blue\n\n## Objective\n", "\n\nA blue desktop.\n", "- [x] look\n", "- [ ] edit *(under way)*\n",
		"- Which blue? (navy, sky) **waiting for an answer**\n",
		"- **failed**: edit the theme (attempt 2)\n", "  - Changed 1 file (+3 −1): `a.css` (modified, +3 −1)\n", "\n> make it blue\n", "  - Ran `npm test`: exit 1 in 1.5s\n",
		"    ````\n    boom\n    ```\n    ## Plan\n    ````\n", "  - Verification (smoke): **fail**\n",
		"The run is working.\n", "3 tool calls, 100 tokens in, 20 out, $0.0123\n", "\n## Notes\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing from\n%s", want, got)
		}
	}
	if again := document.RenderRun("Blue", blue()); again != got {
		t.Error("the same view gives another text")
	}
	if same := document.UpdateRun(got, blue()); same != got {
		t.Errorf("an update with nothing new changes the text:\n%s\n---\n%s", got, same)
	}
}

// TestADocumentNamesWhatWasKeptAndWhatItContinues shows that a person finds in the run's document the tree that
// was kept of a task, and the run that it goes on from.
func TestADocumentNamesWhatWasKeptAndWhatItContinues(t *testing.T) {
	r := blueRun()
	r.Prompt.Continues = contract.DeriveID("before", "run")
	r.Tasks[0].Newest.Kept = &contract.KeptTree{Commit: strings.Repeat("a", 40), Base: strings.Repeat("b", 40), Paths: 2}
	got := document.RenderRun("Blue", document.SectionsOf(r, nil))
	for _, want := range []string{"It goes on from run `" + r.Prompt.Continues + "`.", "Not published; what it wrote is kept as `" + strings.Repeat("a", 40) + "` (2 paths)"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing from\n%s", want, got)
		}
	}
}

func TestAnUpdateKeepsWhatTheUserWrote(t *testing.T) {
	body := document.RenderRun("Blue", blue())
	body = strings.Replace(body, "- [x] look\n", "- [x] look, but carefully\n", 1)
	body = strings.Replace(body, "## Notes\n", "## Notes\n\nDo not touch the logo.\n", 1)
	body = strings.Replace(body, "# Blue\n", "# Blue, mine\n\nAn introduction.\n", 1)
	r := blueRun()
	r.Plan, r.Objective = nil, "A very blue desktop."
	v := document.SectionsOf(r, &contract.RunReported{Usage: contract.Usage{WallMS: 61_000}, Status: contract.RunDone, Summary: "It is blue.\n## Plan\n[//]: # (choir plan 0000000000000000)\nx", Verified: contract.VerificationPass, Checkpoint: strings.Repeat("ab", 20)})
	got := document.UpdateRun(body, v)
	for _, want := range []string{"# Blue, mine\n\nAn introduction.\n", "- [x] look, but carefully\n", "Do not touch the logo.\n", "A very blue desktop.\n",
		"**done**, verification: pass\n\nIt is blue.\n\\## Plan\n [//]: # (choir plan", "Checkpoint `abababababab`\n", ", 1m1s\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing from\n%s", want, got)
		}
	}
	if strings.Contains(got, "No plan yet") {
		t.Error("the user's plan was overwritten")
	}
	edited := document.Edited(got, 8<<10)
	for _, want := range []string{"An introduction.", "## Plan\n\n- [x] look, but carefully\n", "## Notes\n\nDo not touch the logo."} {
		if !strings.Contains(edited, want) {
			t.Errorf("%q is missing from what the user wrote:\n%s", want, edited)
		}
	}
	if strings.Contains(edited, "A very blue desktop") || document.Edited(document.RenderRun("Blue", v), 8<<10) != "" {
		t.Errorf("what was rendered passes for the user's:\n%s", edited)
	}
	// A section stays as the user edited it through every update, and a section that the user
	// removed stays away.
	from, to := strings.Index(got, "## Questions"), strings.Index(got, "## Evidence")
	got = got[:from] + got[to:]
	for range 3 {
		got = document.UpdateRun(got, blue())
	}
	if !strings.Contains(got, "look, but carefully") || strings.Contains(got, "Which blue?") || !strings.Contains(got, "The run is working.") {
		t.Errorf("after more updates:\n%s", got)
	}
}

// TestUpdateLaws shows for any view and any edits that the size is bounded, the text is valid, a
// repeated update changes nothing, and lines that the user added are kept.
func TestUpdateLaws(t *testing.T) {
	text := rapid.OneOf(rapid.StringN(0, 200, -1), rapid.SampledFrom([]string{"```", "## Plan\n[//]: # (choir plan 0123456789abcdef)\n", "~~~\nx", "# h", "a\r\nb", strings.Repeat("long ", 9000)}))
	rapid.Check(t, func(t *rapid.T) {
		v := blueRun()
		v.Objective = text.Draw(t, "objective")
		for i := range rapid.IntRange(0, 120).Draw(t, "tasks") {
			r := &contract.AssociateResult{Attempt: 1, Status: contract.ResultOK, Summary: text.Draw(t, "summary"), Verification: contract.Verification{Profile: contract.VerifySmoke, Status: contract.VerificationPass}}
			r.Commands = []contract.Command{{Argv: []string{"x", text.Draw(t, "arg")}, ExitCode: 1, Stdout: text.Draw(t, "out")}}
			v.Tasks = append(v.Tasks, &run.Task{Request: contract.DirectorTask{ID: fmt.Sprint(i), Goal: text.Draw(t, "goal")}, Now: attempt.Attempt{Number: 1}, Newest: r})
		}
		for range rapid.IntRange(0, 200).Draw(t, "plan") {
			v.Plan = append(v.Plan, contract.PlanItem{Text: text.Draw(t, "item"), Status: contract.PlanOpen})
		}
		body := document.RenderRun(document.RunTitle(text.Draw(t, "prompt")), document.SectionsOf(v, nil))
		if len(body) > contract.MaxInlineData-4096 || !utf8.ValidString(body) {
			t.Fatalf("%d bytes, valid %v", len(body), utf8.ValidString(body))
		}
		if same := document.UpdateRun(body, document.SectionsOf(v, nil)); same != body {
			t.Fatalf("an update with nothing new changes\n%q\nto\n%q", body, same)
		}
		lines := strings.SplitAfter(body, "\n")
		at := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
		edited := strings.Join(lines[:at], "") + "the user was here\n" + strings.Join(lines[at:], "")
		got := document.UpdateRun(edited, blue())
		if !strings.Contains(got, "the user was here\n") {
			t.Fatalf("a line the user added at %d is lost", at)
		}
		if again := document.UpdateRun(got, blue()); again != got {
			t.Fatalf("a second update changes the text")
		}
	})
}

func TestUpdateRunInTheLog(t *testing.T) {
	d, _, _ := open(t)
	r := create(t, d, document.RenderRun("Blue", blue()))
	if _, err := d.Revise(t.Context(), r.Document, 1, strings.Replace(r.Body, "## Notes\n", "## Notes\n\nmine\n", 1), person); err != nil {
		t.Fatal(err)
	}
	v := blueRun()
	v.Objective = "Another objective."
	got, err := d.UpdateRun(t.Context(), r.Document, document.SectionsOf(v, nil), agent)
	if err != nil || got.Revision != 3 || !strings.Contains(got.Body, "\nmine\n") || !strings.Contains(got.Body, "Another objective.") {
		t.Errorf("%+v %v", got, err)
	}
}
