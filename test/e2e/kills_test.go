package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/eval/cassette"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// What the task counts to, in two calls for each number, and how often everything is killed meanwhile.
const (
	countsTo = 100
	kills    = 50
	calm     = 20 // calls at its end, during which nothing is killed
)

// counting is a task of more than two hundred calls. For each number one call appends it to a file, whatever is there: made twice,
// the number is there twice. The next one looks, as a model would that was told that the end of its call is not known, and is
// made again until its own end is known. Those behind them are left alone, so that the document shows the same ten.
func counting(t *testing.T) *cassette.Cassette {
	step := func(role, name, until string, args any) cassette.Step {
		b, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		return cassette.Step{Role: role, Until: until, Calls: []cassette.Call{{Name: name, Args: b}}}
	}
	c := &cassette.Cassette{Head: cassette.Head{Cassette: cassette.Version, Origin: cassette.Written, About: "counts"}}
	bash := func(until, command string) {
		c.Steps = append(c.Steps, step(cassette.Associate, "bash", until, object{"cwd": "workspace", "command": command}))
	}
	c.Steps = append(c.Steps, step(cassette.Director, "delegate", "", object{"tasks": []any{object{"kind": "agent", "goal": "count to a hundred", "tools": []any{"bash"}, "verify": object{"profile": "none"}}}}))
	for n := range countsTo {
		bash("", fmt.Sprintf("echo %d >> counter.txt", n))
		also := ""
		if n%10 == 0 {
			also = fmt.Sprintf("mkdir -p tens/%[1]d && seq 0 %[1]d > tens/%[1]d/list && echo '#!/bin/sh' > tens/%[1]d/run && chmod 755 tens/%[1]d/run && ln -sfn list tens/%[1]d/newest && ", n)
		}
		bash(fmt.Sprintf("there is %d", n), fmt.Sprintf("%sif ! grep -qx %[2]d counter.txt; then echo %[2]d >> counter.txt; fi && printf 'there is %%s' %[2]d", also, n))
	}
	for n := range calm {
		bash("", fmt.Sprintf("sed -n %dp counter.txt", n+1))
	}
	c.Steps = append(c.Steps, step(cassette.Associate, "finish", "", object{"status": "ok", "summary": "Counted."}),
		step(cassette.Director, "report", "", object{"status": "done", "summary": "Counted."}))
	return c
}

// TestALongTaskSurvivesKills: a task of two hundred calls, during which everything is killed at fifty instants all over it, each second
// one while what the first has killed is starting, ends as it would have undisturbed: in the attempt in which it began, with the
// same tree and the same document. No call that counts was made twice, and none was lost. All that the model was sent meanwhile is a
// request in the eyes of its vendor's own types. Both wire formats that a cassette is played in are killed so.
func TestALongTaskSurvivesKills(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	if s := os.Getenv("CHOIR_CHAOS_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("CHOIR_CHAOS_SEED is no number: %v", err)
		}
		seed = n
	}
	for _, wire := range []modelserver.Wire{modelserver.Anthropic, modelserver.OpenAI} {
		t.Run(string(wire), func(t *testing.T) {
			t.Parallel()
			t.Logf("CHOIR_CHAOS_SEED=%d chooses the same instants again", seed)
			began := time.Now()
			quiet := count(t, wire, nil)
			undisturbed := time.Since(began)
			disturbed := count(t, wire, rand.New(rand.NewPCG(seed, uint64(len(wire)))))
			t.Logf("%d kills; undisturbed it took %v, disturbed %v; %d requests and %d", disturbed.kills, undisturbed.Round(time.Millisecond),
				(time.Since(began) - undisturbed).Round(time.Millisecond), quiet.requests, disturbed.requests)
			if quiet.kills != 0 || disturbed.kills != kills {
				t.Errorf("%d and %d kills, want 0 and %d", quiet.kills, disturbed.kills, kills)
			}
			for path := range union(quiet.tree, disturbed.tree) {
				if a, b := quiet.tree[path], disturbed.tree[path]; a != b {
					t.Errorf("%s is %.300q, undisturbed it is %.300q", path, b, a)
				}
			}
			if len(quiet.tree) < 100 || quiet.tree["workspace/tens/90/run"] == "" {
				t.Errorf("only %d paths were compared", len(quiet.tree))
			}
			if quiet.document != disturbed.document {
				t.Errorf("the document is\n%s\nundisturbed it is\n%s", disturbed.document, quiet.document)
			}
		})
	}
}

// counted is what is left of a task that counted.
type counted struct {
	kills, requests int
	tree            map[string]string
	document        string
}

// count has a task count, and kills everything at instants that random chooses; nil: at none.
func count(t *testing.T, wire modelserver.Wire, random *rand.Rand) counted {
	t.Helper()
	model := tape(t, counting(t))
	key := "ANTHROPIC_API_KEY"
	env := []string{"ANTHROPIC_BASE_URL=" + model.url, "CHOIR_MODEL=anthropic/cassette-count"}
	if wire == modelserver.OpenAI {
		key, env = "OPENAI_API_KEY", []string{"OPENAI_BASE_URL=" + model.url + "/v1", "CHOIR_MODEL=openai/cassette-count"}
	}
	options := choirtest.Options{Data: filepath.Join(choirtest.Scratch(t), "data"), Env: append(env, key+"="+newKey(), "CHOIR_BUDGET_TURNS=500", "CHOIR_BUDGET_TOOL_CALLS=500",
		"CHOIR_BUDGET_TOKENS=100000000", "CHOIR_BUDGET_COST_USD=0", "CHOIR_BUDGET_DAY_COST_USD=0", "CHOIR_LOOPS_DIRECT_WORDS=0")}
	began := time.Now()
	in := choirtest.Start(t, options)
	starts := time.Since(began)
	run := submit(t, in, "count to a hundred")
	var left counted
	if random != nil {
		in, left.kills = killAgainAndAgain(t, in, run, options, model, random, starts)
	}
	choirtest.Eventually(t, 5*time.Minute, "the run ends", func() bool { return runOf(t, in, run).Status.Ended() })
	r := runOf(t, in, run)
	if r.Status != contract.RunDone || len(r.Tasks) != 1 || r.Tasks[0].Result == nil || r.Tasks[0].Result.Attempt != 1 {
		t.Fatalf("run: %+v", r)
	}
	var want []string
	for n := range countsTo {
		want = append(want, fmt.Sprint(n))
	}
	if got := strings.Fields(in.Must(t, "files", "cat", "workspace/counter.txt")); !slices.Equal(got, want) {
		t.Errorf("the calls that count made %v of it", got)
	}
	left.requests = model.decoded(t, wire)
	left.tree = allOf(t, in, run)
	left.document = documentOf(t, in, r)
	return left
}

// killAgainAndAgain kills everything in pairs, which are as far apart from each other as the task is long: some milliseconds after
// the request of a step, and then at any instant of the start that follows, until the task asks again. It returns the instance that is
// left, and how many kills ended a choir whose task was not over.
func killAgainAndAgain(t *testing.T, in *choirtest.Instance, run string, options choirtest.Options, model *model, random *rand.Rand, starts time.Duration) (*choirtest.Instance, int) {
	t.Helper()
	killed, early, apart := 0, 0, 2*countsTo/(kills/2)
	for n := range kills / 2 {
		// One call has returned in between: an attempt that gets on with none in three resumptions is given up.
		model.reaches(t, max(n*apart+random.IntN(apart), model.newest()+1))
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond) // an instant like any other, not a wait
		if in.Kill(); in.Killed() {
			killed++
		}
		if up := choirtest.KillStarting(t, options, time.Duration(random.Int64N(int64(starts))), model.next()); !up {
			early++
		}
		killed++
		began, asked := time.Now(), model.next()
		in = choirtest.Start(t, options)
		select {
		case <-asked:
			starts = time.Since(began)
		case <-time.After(2 * time.Minute):
			t.Fatalf("the task does not go on after %d kills, in step %d: %s", killed, model.newest(), in.Must(t, "runs", run))
		}
		if model.newest() > 2*countsTo+calm/2 {
			t.Fatalf("the task was over after %d kills", killed)
		}
	}
	t.Logf("%d of %d kills came before choir had said that it is up", early, killed)
	return in, killed
}

// allOf is all that a computer's tree holds once a run has ended: of each path its mode and what is there. The run's document, a
// file whose name has the run's day and id, and whose text is looked at as the document, is there under another name.
func allOf(t *testing.T, in *choirtest.Instance, run string) map[string]string {
	t.Helper()
	root := workspaceDir(t, in)
	suffix := "-" + run[len(run)-8:] + ".md"
	choirtest.Eventually(t, time.Minute, "the run's document is a file", func() bool {
		all, err := filepath.Glob(filepath.Join(root, "artifacts", "runs", "*"+suffix))
		return err == nil && len(all) == 1
	})
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at, err := filepath.Rel(root, path)
		if err != nil || at == ".git" {
			return filepath.SkipDir // the history has times and ids in each commit
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var is []byte
		switch {
		case strings.HasSuffix(at, suffix):
			at, is = "the run's document", nil
		case info.Mode().IsRegular():
			is, err = os.ReadFile(path)
		case info.Mode()&os.ModeSymlink != 0:
			var to string
			to, err = os.Readlink(path)
			is = []byte(to)
		}
		out[at] = fmt.Sprintf("%v %s", info.Mode(), is)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func union(a, b map[string]string) map[string]bool {
	out := map[string]bool{}
	for path := range a {
		out[path] = true
	}
	for path := range b {
		out[path] = true
	}
	return out
}

// What differs between the documents of two runs of the same: the checkpoint's id, times, and so the digests that sections bear.
var (
	checkpointIDs  = regexp.MustCompile("Checkpoint `[0-9a-f]{12}`")
	sectionDigests = regexp.MustCompile(`(\(choir [a-z]+) [0-9a-f]{16}\)`)
	runTimes       = regexp.MustCompile(`(: exit \d+ in )\S+`)
	earlierRan     = regexp.MustCompile(`… (\d+) earlier commands`)
	costLine       = regexp.MustCompile(`(?m)^(\d+) tool calls, \d+ tokens in, .*$`)
)

// documentOf is a run's document without what differs between two runs of the same. Calls whose end is not known are looked after by
// others, so how many there were, and what they cost, differs too: it is held against the run's own log.
func documentOf(t *testing.T, in *choirtest.Instance, r view.Run) string {
	t.Helper()
	doc := in.Must(t, "documents", "show", r.Document)
	calls, commands := len(eventsOf(t, in, "tool.called")), 0
	for _, e := range eventsOf(t, in, "tool.returned") {
		var p contract.ToolReturned
		if err := json.Unmarshal(e.Data, &p); err != nil {
			t.Fatal(err)
		}
		if p.Command != nil {
			commands++
		}
	}
	if got := earlierRan.FindStringSubmatch(doc); got == nil || got[1] != fmt.Sprint(commands-10) {
		t.Errorf("the log has %d commands that ended, of which the document shows ten; it counts %q earlier ones", commands, got)
	}
	const planning = 2 // the Director's own calls, to delegate and to report, are no tools of a task
	if got := costLine.FindStringSubmatch(doc); got == nil || got[1] != fmt.Sprint(calls+planning) {
		t.Errorf("the log has %d calls and %d of the Director, the document counts %q", calls, planning, got)
	}
	for old, is := range map[*regexp.Regexp]string{checkpointIDs: "Checkpoint ID", sectionDigests: "$1)", runTimes: "${1}TIME", earlierRan: "… earlier commands", costLine: "COST"} {
		doc = old.ReplaceAllString(doc, is)
	}
	return doc
}
