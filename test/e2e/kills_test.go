package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/eval/cassette"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestALongTaskSurvivesKills: a task of two hundred calls, during which everything is killed at fifty instants, every other time
// twice in a row, ends with the tree that it would have had undisturbed, in the attempt in which it began, and no call was made twice.
func TestALongTaskSurvivesKills(t *testing.T) {
	t.Parallel()
	const numbers, kills = 100, 50
	step := func(role, name string, args any) cassette.Step {
		b, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		return cassette.Step{Role: role, Calls: []cassette.Call{{Name: name, Args: b}}}
	}
	c := &cassette.Cassette{Head: cassette.Head{Cassette: cassette.Version, Origin: cassette.Written, About: "counts"}}
	c.Steps = append(c.Steps, step(cassette.Director, "delegate", object{"tasks": []any{object{"kind": "agent", "goal": "count to a hundred", "tools": []any{"bash"}, "verify": object{"profile": "none"}}}}))
	var want []string
	for n := range numbers {
		// A call whose end is not known is looked after by the next one, as a model that was told would.
		c.Steps = append(c.Steps,
			step(cassette.Associate, "bash", object{"cwd": "workspace", "command": fmt.Sprintf("echo %d >> raw.txt && seq 0 %d > sure.txt", n, n)}),
			step(cassette.Associate, "bash", object{"cwd": "workspace", "command": fmt.Sprintf("seq 0 %d > sure.txt", n)}))
		want = append(want, fmt.Sprint(n))
	}
	for range 3 {
		c.Steps = append(c.Steps, step(cassette.Associate, "bash", object{"cwd": "workspace", "command": fmt.Sprintf("seq 0 %d > sure.txt", numbers-1)}))
	}
	c.Steps = append(c.Steps, step(cassette.Associate, "finish", object{"status": "ok", "summary": "Counted."}),
		step(cassette.Director, "report", object{"status": "done", "summary": "Counted."}))

	player := cassette.NewPlayer()
	player.Put("count", c)
	var mu sync.Mutex
	asked := 0
	random := rand.New(rand.NewPCG(7, 11))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked++
		mu.Unlock()
		player.ServeHTTP(w, r)
	}))
	defer server.Close()

	options := choirtest.Options{Data: filepath.Join(choirtest.Scratch(t), "data"), Env: []string{"ANTHROPIC_API_KEY=" + newKey(), "ANTHROPIC_BASE_URL=" + server.URL,
		"CHOIR_MODEL=anthropic/cassette-count", "CHOIR_BUDGET_TURNS=500", "CHOIR_BUDGET_TOOL_CALLS=500", "CHOIR_BUDGET_TOKENS=100000000", "CHOIR_BUDGET_COST_USD=0", "CHOIR_BUDGET_DAY_COST_USD=0", "CHOIR_LOOPS_DIRECT_WORDS=0"}}
	in := choirtest.Start(t, options)
	run := submit(t, in, "count to a hundred")
	turns := func() int {
		mu.Lock()
		defer mu.Unlock()
		return asked
	}
	over := func() bool {
		var r view.Run
		in.JSON(t, &r, "runs", run)
		return !r.Ended.IsZero()
	}
	for n := range kills {
		// The instant is so many requests on, and then some milliseconds within one; every other kill follows while the
		// run is being taken up.
		from, on := turns(), 1+random.IntN(6)
		if n%2 == 1 {
			on = 1
		}
		choirtest.Eventually(t, 2*time.Minute, "the task gets on", func() bool { return turns() >= from+on || over() })
		if over() {
			t.Logf("the run had ended after %d kills", n)
			break
		}
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond) // an instant like any other, not a wait
		in.Kill()
		in = choirtest.Start(t, options)
	}
	choirtest.Eventually(t, 5*time.Minute, "the run ends", over)
	r := runOf(t, in, run)
	if r.Status != contract.RunDone || len(r.Tasks) != 1 || r.Tasks[0].Result == nil || r.Tasks[0].Result.Attempt != 1 {
		t.Fatalf("run: %+v", r)
	}
	if got := strings.Fields(in.Must(t, "files", "cat", "workspace/sure.txt")); !slices.Equal(got, want) {
		t.Errorf("the tree has %v", got)
	}
	seen := map[string]int{}
	for _, line := range strings.Fields(in.Must(t, "files", "cat", "workspace/raw.txt")) {
		if seen[line]++; seen[line] > 1 {
			t.Errorf("the call that counts %s was made %d times", line, seen[line])
		}
	}
	t.Logf("%d of %d calls that count were made; of the others it is not known", len(seen), numbers)
}
