package summary_test

import (
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/director"
	"choir.dev/choiros/internal/dispatch/summary"
	story "choir.dev/choiros/internal/run"
)

// TestAReportSaysWhatWasDoneOutside shows that a run which changed nothing in the computer is not said to have changed
// nothing when calls were done outside.
func TestAReportSaysWhatWasDoneOutside(t *testing.T) {
	effect := func(o contract.EffectOutcome) *story.Effect {
		return &story.Effect{Ended: &contract.EffectEnded{Outcome: o}}
	}
	for _, c := range []struct {
		effects []*story.Effect
		want    string
	}{
		{nil, "- Nothing was changed."},
		{[]*story.Effect{effect(contract.EffectFailed)}, "- Nothing was changed."},
		{[]*story.Effect{effect(contract.EffectDone)}, "- Nothing was changed in the computer. Outside, 1 call is done: choir effects --run R"},
		{[]*story.Effect{effect(contract.EffectDone), effect(contract.EffectDone)}, "- Nothing was changed in the computer. Outside, 2 calls are done: choir effects --run R"},
	} {
		s := story.New("R")
		s.Effects = c.effects
		s.Tasks = []*story.Task{{Newest: &contract.AssociateResult{Status: contract.ResultOK}}}
		got := summary.Reported(s, director.Report{Status: contract.RunDone, Summary: "Noted."}, contract.Usage{}).Summary
		if line := got[strings.LastIndex(got, "\n")+1:]; line != c.want {
			t.Errorf("it says %q; want %q", line, c.want)
		}
	}
}

// TestAReportSaysWhyATaskFailed shows that the report of a run whose task failed has the sentence why, on one line and bounded.
func TestAReportSaysWhyATaskFailed(t *testing.T) {
	s := story.New("R")
	s.Tasks = []*story.Task{{Request: contract.DirectorTask{Goal: "Fix it"}, Newest: &contract.AssociateResult{Status: contract.ResultFailed, Summary: "The program\nis not there. " + strings.Repeat("x", 1000)}}}
	p := summary.Reported(s, director.Report{Status: contract.RunDone, Summary: "Fixed."}, contract.Usage{})
	for _, said := range []string{p.Summary, p.Error} {
		if !strings.Contains(said, "“Fix it” ended as failed: The program is not there. x") || len(said) > 600 {
			t.Errorf("it says %q", said)
		}
	}
}
