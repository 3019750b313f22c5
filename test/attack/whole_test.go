package attack_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// Some attacks are on a whole computer: `choir up` runs in the build with the switches, with a
// computer, its boxes and a scripted model. All rows of a run share it, because it takes seconds to
// start, so each row uses a folder and prompts of its own.

// key is the key of the shared computer's provider. It does not look like a key, by which it would
// be found.
const key = "Xq7.canary.4f1d0c9be2774a86"

// shared is the one `choir up`, and the model that it calls.
var shared struct {
	sync.Mutex
	*choirtest.Instance
	model *modelserver.Server
	hosts hosts
	tries int
}

// hosts are two hosts that no computer was granted, with the paths that were requested of them.
type hosts struct {
	tls, plain *httptest.Server
	mu         sync.Mutex
	asked      []string
}

// whole is the shared computer as one try of a row sees it.
type whole struct {
	*choirtest.Instance
	model *modelserver.Server
	hosts *hosts
	mark  string // a word in this try's prompts and names, and in no other's
}

// matrix is the test with which the shared computer ends.
var matrix *testing.T

// builtChoir returns the binary with the switches.
func builtChoir(t *testing.T) string { return sandboxtest.Binary(t, "choir.dev/choiros/cmd/choir") }

func newWhole(t *testing.T) *whole {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.Instance == nil {
		model := modelserver.New(modelserver.Script{}).Start()
		matrix.Cleanup(model.Close)
		shared.hosts.start()
		in, err := choirtest.TryStart(matrix, choirtest.Options{Binary: builtChoir(t), Env: append(defence.LauncherEnv(), // with the file of what is off
			"CHOIR_LOOPS_REPAIRS=0", "CHOIR_LOOPS_DIRECT_WORDS=0", "CHOIR_MODELS_PATIENCE_S=6", "ANTHROPIC_API_KEY="+key, "ANTHROPIC_BASE_URL="+model.URL(), "CHOIR_MODEL=anthropic/claude-sonnet-4-6",
			"CHOIR_EGRESS_ALLOW_PRIVATE="+shared.hosts.tls.Listener.Addr().String()+","+shared.hosts.plain.Listener.Addr().String())})
		if err != nil {
			t.Fatal(err)
		}
		shared.Instance, shared.model = in, model
	}
	shared.tries++
	return &whole{shared.Instance, shared.model, &shared.hosts, fmt.Sprintf("try %03d:", shared.tries)}
}

func (h *hosts) start() {
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.asked = append(h.asked, r.URL.Path)
	})
	h.tls, h.plain = httptest.NewTLSServer(handler), httptest.NewServer(handler)
	matrix.Cleanup(h.tls.Close)
	matrix.Cleanup(h.plain.Close)
}

// reached reports whether a path was requested of one of them.
func (h *hosts) reached(path string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.asked, path)
}

// dir returns the name of a folder that only this try uses.
func (w *whole) dir() string { return "try" + strings.Trim(w.mark, "try: ") }

// events returns the events of some types.
func (w *whole) events(t *testing.T, types ...string) string {
	t.Helper()
	args := []string{"events"}
	for _, typ := range types {
		args = append(args, "--type", typ)
	}
	return w.Must(t, args...)
}

// prompt makes the model play its turns for a prompt, and waits for the end of the run. It denies
// whatever the user is asked meanwhile.
func (w *whole) prompt(t *testing.T, words string, turns ...modelserver.Turn) view.Run {
	t.Helper()
	for i := range turns {
		turns[i].Match = w.mark
	}
	w.model.Add(turns...)
	var started struct{ Run string }
	w.JSON(t, &started, "prompt", w.mark+" "+words)
	for {
		var run view.Run
		if err := json.Unmarshal(w.Get(t, "/api/computers/-/runs/"+started.Run+"?wait=60"), &run); err != nil {
			t.Fatal(err)
		}
		if run.Status.Ended() {
			return run
		}
		for _, a := range run.Approvals {
			w.Must(t, "approve", "--deny", a.ID)
		}
	}
}

type object = map[string]any

// says is a turn of a model that calls a tool.
func says(role, tool string, args object) modelserver.Turn {
	return modelserver.Turn{Role: role, Calls: []modelserver.Call{{Name: tool, Args: modelserver.Args(args)}}}
}

// delegated returns the turns of a run with one task, whose Associate runs one command.
func (w *whole) delegated(command string, more object) []modelserver.Turn {
	task := object{"kind": "agent", "goal": w.mark + " do what is asked.", "tools": []any{"bash"}, "verify": object{"profile": "none"}}
	for k, v := range more {
		task[k] = v
	}
	return []modelserver.Turn{
		says("director", "delegate", object{"tasks": []any{task}}),
		says("associate", "bash", object{"command": command}),
		says("associate", "finish", object{"status": "ok", "summary": "done"}),
		says("director", "report", object{"status": "done", "summary": "It is done."}),
	}
}
