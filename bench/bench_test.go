package bench_test

import (
	"os/exec"
	"strings"
	"testing"

	"choir.dev/choiros/bench"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
	"choir.dev/choiros/test/choirtest"
)

func TestMain(m *testing.M) { sandboxtest.Main(m) }

// TestRows measures every row with tiny sizes: each must yield numbers, however large they
// are.
func TestRows(t *testing.T) {
	for _, tool := range []string{"bwrap", "git", "node"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("this test needs %s: %v", tool, err)
		}
	}
	modules, err := choirtest.Modules()
	if err != nil {
		t.Fatalf("run `make build` first: %v", err)
	}
	o := bench.Options{Binary: choirtest.Binary(t), Version: "test", Guest: sandboxtest.Guest(t), Dir: t.TempDir(), Modules: []string{modules},
		Progress: t.Output(), Tiny: true}
	for _, row := range bench.Rows() {
		t.Run(row.Name, func(t *testing.T) {
			report, err := bench.Run(t.Context(), o, row.Name)
			if err != nil {
				t.Fatal(err)
			}
			if len(report.Results) == 0 {
				t.Fatal("it yields no result")
			}
			for _, r := range report.Results {
				switch {
				case r.NotMeasured != "":
					t.Errorf("%s was not measured: %s", r.ID, r.NotMeasured)
				case r.Ours == nil || r.Ours.Value <= 0 || r.Ours.Unit == "":
					t.Errorf("%s has no number: %+v", r.ID, r.Ours)
				case r.Raw != nil && (r.Raw.Value <= 0 || r.RawWhat == ""):
					t.Errorf("%s has no raw number, or doesn't say of what: %+v %q", r.ID, r.Raw, r.RawWhat)
				case r.Target != nil && r.Met == nil:
					t.Errorf("%s is not judged", r.ID)
				}
			}
		})
	}
}

func TestUnknownRow(t *testing.T) {
	_, err := bench.Run(t.Context(), bench.Options{Dir: t.TempDir()}, "append", "nothing")
	if !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "append, replay") {
		t.Fatalf("got %v, hint %q", err, fault.HintOf(err))
	}
}

// TestWithoutBinary shows that what can't be measured is reported and is no failure.
func TestWithoutBinary(t *testing.T) {
	report, err := bench.Run(t.Context(), bench.Options{Dir: t.TempDir()}, "binary", "start")
	if err != nil {
		t.Fatal(err)
	}
	if report.Failed() || len(report.Results) != 2 || report.Results[0].NotMeasured == "" || report.Results[0].Met != nil {
		t.Fatalf("%+v", report.Results)
	}
	if page := report.Markdown(); !strings.Contains(page, "not measured") || !strings.Contains(page, "Not measured: there is no choir binary") {
		t.Fatal(page)
	}
}
