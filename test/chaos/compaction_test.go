package chaos_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/eval/cassette"
	"choir.dev/choiros/test/modelserver"
)

// compactionPoints are passed while a loop compacts its history.
var compactionPoints = []string{"associate.compaction.asking", "dispatch.compaction.asked", "associate.compaction.summarised", "dispatch.compaction.recorded", "associate.compaction.recorded"}

// counting is a model that counts in a file by calls with so much output that their history is compacted, and notes what it is asked.
type counting struct {
	mu     sync.Mutex
	player *cassette.Player
	asked  []string // by the Associate, since begin
}

// sums is what a compaction asks for, last in its request.
const sums = "Use exactly these sections"

const counted = 12

// begin has the next run count in a file.
func (c *counting) begin(path string) error {
	tape := &cassette.Cassette{Head: cassette.Head{Cassette: cassette.Version, Origin: cassette.Written, About: "counts"}}
	step := func(role, name string, args any) error {
		b, err := json.Marshal(args)
		tape.Steps = append(tape.Steps, cassette.Step{Role: role, Calls: []cassette.Call{{Name: name, Args: b}}})
		return err
	}
	type object = map[string]any
	err := step(cassette.Director, "delegate", object{"tasks": []any{object{"kind": "agent", "goal": "count", "tools": []any{"bash"}, "verify": object{"profile": "none"}}}})
	for n := range counted {
		if err == nil {
			err = step(cassette.Associate, "bash", object{"command": fmt.Sprintf("mkdir -p %s && echo %d >> %s && seq %d %d", filepath.Dir(path), n, path, 10000, 12200)})
		}
	}
	for _, last := range []struct {
		role, name string
		args       object
	}{{cassette.Associate, "finish", object{"status": "ok", "summary": "Counted."}}, {cassette.Director, "report", object{"status": "done", "summary": "Counted."}}} {
		if err == nil {
			err = step(last.role, last.name, last.args)
		}
	}
	player := cassette.NewPlayer()
	player.Put("count", tape)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.player, c.asked = player, nil
	return err
}

// ServeHTTP implements http.Handler.
func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	var in struct {
		Messages []json.RawMessage
		Tools    []struct{ Name string }
	}
	_ = json.Unmarshal(body, &in) // the player says what is wrong with it
	c.mu.Lock()
	player := c.player
	if slices.ContainsFunc(in.Tools, func(t struct{ Name string }) bool { return t.Name == "finish" }) {
		c.asked = append(c.asked, plain(in.Messages))
	}
	c.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	if n := len(in.Messages); n > 0 && bytes.Contains(in.Messages[n-1], []byte(sums)) {
		modelserver.New(modelserver.Script{Turns: []modelserver.Turn{{Text: "## Goal\nTo count."}}}).ServeHTTP(w, r)
		return
	}
	player.ServeHTTP(w, r)
}

// what differs between two runs that do the same, and between two tries of one.
var (
	differs = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|workspace/p/[0-9]+\.txt|/tmp/choir-output-[0-9]+/[^,]+|[0-9.]+ of [0-9.]+ (?:seconds|tokens|USD)`)
	serial  = regexp.MustCompile(`(step_a_[0-9]+_[0-9]+)_[0-9]+`)
	marks   = regexp.MustCompile(`,?"cache_control":\{[^}]*\}`)
)

// plain is a conversation without what differs, and without its opening, which tells of the day and the machine.
func plain(messages []json.RawMessage) string {
	var b strings.Builder
	for _, m := range messages[min(1, len(messages)):] {
		b.Write(m)
		b.WriteByte('\n')
	}
	text := marks.ReplaceAllString(b.String(), "")
	return serial.ReplaceAllString(differs.ReplaceAllString(text, "…"), "$1")
}

// count has the model count in a file, and returns what it was asked. killed does what is to be done about deaths.
func (w *world) count(c *counting, killed func()) []string {
	w.t.Helper()
	path := "workspace/p/" + w.next() + ".txt"
	if err := c.begin(path); err != nil {
		w.t.Fatal(err)
	}
	var want strings.Builder
	for n := range counted {
		fmt.Fprintln(&want, n)
	}
	ctx, cancel := w.soon()
	defer cancel()
	err := w.run(ctx, &prompt{text: "count in " + path, writes: map[string]func(values) string{path: func(values) string { return want.String() }}})
	if killed(); err != nil {
		w.t.Logf("%s: %v", path, err)
	}
	w.verify("counted in "+path, true)
	if p := w.prompts[len(w.prompts)-1]; p.outcome != "done" {
		w.t.Errorf("%s: the run is %s", path, p.outcome)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Compact(c.asked)
}

// TestACompactionIsKilled: a loop that dies at an edge of a compaction, or whose host does, once and twice in a row, goes on with the
// requests that it makes undisturbed, and no call that changes something is made twice: each is a line of the file.
func TestACompactionIsKilled(t *testing.T) {
	t.Parallel()
	model := &counting{}
	server := httptest.NewServer(model)
	t.Cleanup(server.Close)
	w := newWorldAt(t, filepath.Join(t.TempDir(), "data"), func() int { return 0 }, "ANTHROPIC_API_KEY=sk-not-a-key-0000", "ANTHROPIC_BASE_URL="+server.URL,
		"CHOIR_MODEL=anthropic/cassette-count", "CHOIR_BUDGET_TURNS=100", "CHOIR_BUDGET_TOKENS=100000000", "CHOIR_BUDGET_COST_USD=0", "CHOIR_BUDGET_DAY_COST_USD=0")
	want := w.count(model, func() {})
	if n := len(slices.DeleteFunc(slices.Clone(want), func(s string) bool { return !strings.Contains(s, sums) })); n == 0 || len(want) != counted+1+n {
		t.Fatalf("undisturbed, %d requests and %d summaries", len(want), n)
	}
	for _, point := range compactionPoints {
		for times := 1; times <= 2 && !t.Failed(); times++ {
			when := fmt.Sprintf("killed %d times at %s", times, point)
			w.armTimes(point, 1, times)
			got := w.count(model, func() {
				for n := 1; !inBox(point) && n <= times; n++ {
					w.dead(when)
					w.restart()
				}
			})
			if n := w.hits(); n != times {
				t.Errorf("%s: it was killed %d times; passed were %v", when, n, w.passes())
			}
			w.disarm()
			if !slices.Equal(got, want) {
				t.Errorf("%s: %d requests, undisturbed %d%s", when, len(got), len(want), firstDifference(got, want))
			}
			histogram.add(point, "run done")
		}
	}
	w.checkDeep()
	w.end()
}

func firstDifference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if a, b := got[i], want[i]; a != b {
			n := 0
			for n < min(len(a), len(b)) && a[n] == b[n] {
				n++
			}
			from := max(0, n-200)
			return fmt.Sprintf(": number %d differs:\n…%.600s\n…%.600s", i, a[from:], b[from:])
		}
	}
	return ""
}
