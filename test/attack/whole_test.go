package attack_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// Some attacks are on the whole: `choir up` runs in the build that has the
// switches, with a computer, its boxes and a model that is scripted. All rows of
// a run share it, for it takes seconds to start, so each works in a folder of its
// own and sends prompts of its own.

// key is what the shared computer's provider is paid with: nothing that is found
// by its looks.
const key = "Xq7.canary.4f1d0c9be2774a86"

// shared is the one `choir up`, and the model that it calls.
var shared struct {
	sync.Mutex
	*choirtest.Instance
	model *modelserver.Server
	tries int
}

// whole is the shared computer as one try of a row sees it.
type whole struct {
	*choirtest.Instance
	model *modelserver.Server
	mark  string // in this try's prompts and names, and in no other's
}

// matrix is the test that the shared computer ends with.
var matrix *testing.T

// builtChoir is the binary with the switches.
func builtChoir(t *testing.T) string { return sandboxtest.Binary(t, "choir.dev/choiros/cmd/choir") }

func newWhole(t *testing.T) *whole {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.Instance == nil {
		model := modelserver.New(modelserver.Script{}).Start()
		matrix.Cleanup(model.Close)
		in, err := choirtest.TryStart(matrix, choirtest.Options{Binary: builtChoir(t), Env: append(defence.LauncherEnv(), // of what is off
			"ANTHROPIC_API_KEY="+key, "ANTHROPIC_BASE_URL="+model.URL(), "CHOIR_MODEL=anthropic/claude-sonnet-4-6")})
		if err != nil {
			t.Fatal(err)
		}
		shared.Instance, shared.model = in, model
	}
	shared.tries++
	return &whole{shared.Instance, shared.model, fmt.Sprintf("try %03d:", shared.tries)}
}

// dir is a name of a folder that only this try has.
func (w *whole) dir() string { return "try" + strings.Trim(w.mark, "try: ") }

// events are those of some types.
func (w *whole) events(t *testing.T, types ...string) string {
	t.Helper()
	args := []string{"events"}
	for _, typ := range types {
		args = append(args, "--type", typ)
	}
	return w.Must(t, args...)
}
