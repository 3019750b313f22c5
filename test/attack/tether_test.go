package attack_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
	"choir.dev/choiros/internal/sandbox/local"
	"choir.dev/choiros/internal/sandbox/sandboxtest"
)

// TestRow15Tether uses a guest that was taken over and tampers with its tether. Tokens (wrong,
// replayed, stolen, reflected) are tested in internal/tether, where both ends can be played.
func TestRow15Tether(t *testing.T) {
	t.Run("local", func(t *testing.T) {
		bad, err := local.New(t.Context(), local.Options{Guest: sandboxtest.BadGuest(t), Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = bad.Close() })
		hostile := sandboxtest.NewEnv(t, bad)

		var served atomic.Int64
		count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) })
		// The control: a guest that does nothing wrong keeps its box.
		quiet, _ := hostile.Box(t, sandbox.BoxSpec{ID: "quiet", Handler: count})
		for _, way := range []string{"huge-frame", "ping-flood", "stream-flood", "garbage"} {
			b, _ := hostile.Box(t, sandbox.BoxSpec{ID: way, Handler: count, Env: map[string]string{"WAY": way}})
			if ended := sandboxtest.AwaitEnd(t, b, 20*time.Second); ended.Reason != sandbox.Tampered || ended.Code() != fault.Denied {
				t.Errorf("%s: the box ended with %v", way, ended)
			}
		}
		select {
		case <-quiet.Done():
			t.Errorf("the quiet box ended with %v", quiet.Err())
		default:
		}
		// Streams that a guest holds open cost only its own share: another box is served meanwhile.
		b, _ := hostile.Box(t, sandbox.BoxSpec{ID: "loris", Handler: count, Env: map[string]string{"WAY": "hold-streams"}})
		good, err := local.New(t.Context(), local.Options{Guest: sandboxtest.BareGuest(t), Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = good.Close() })
		_, g := sandboxtest.NewEnv(t, good).Box(t, sandbox.BoxSpec{ID: "good"})
		for range 20 {
			if r := sandboxtest.Run(t, g, "true"); r.Code != 0 {
				t.Fatal(r)
			}
		}
		if err := b.Kill(); err != nil {
			t.Error(err)
		}
		if n := served.Load(); n != 0 {
			t.Errorf("%d requests were served that nobody sent whole", n)
		}
	})
	onEveryDriver(t, func(t *testing.T, e *sandboxtest.Env) {
		// A box can call only its own handler, whatever it calls itself: requests have no place to
		// name another box, kind or computer.
		var mine, other atomic.Int64
		_, g := e.Box(t, sandbox.BoxSpec{ID: "mine", Proxy: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mine.Add(1)
			http.Error(w, "no", http.StatusForbidden)
		})})
		e.Box(t, sandbox.BoxSpec{ID: "other", Kind: contract.BoxDirector, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { other.Add(1) })})
		mustFail(t, g, "connect", guest.ProxyAddr, "other:443")
		if mine.Load() != 1 || other.Load() != 0 {
			t.Errorf("the box's own handler was asked %d times, another's %d times", mine.Load(), other.Load())
		}
	})
	// No kind of box can send a result, so none can be forged, duplicated or early. The host makes
	// results from what it saw, with ids derived from their cause.
	var postable []string
	for _, info := range contract.Types() {
		for _, kind := range contract.BoxKinds {
			if contract.MayPost(kind, info.Type) {
				postable = append(postable, string(kind)+" "+info.Type)
			}
		}
	}
	slices.Sort(postable)
	if want := []string{"director question.asked", "director run.planned"}; !slices.Equal(postable, want) {
		t.Errorf("boxes may post %q, want %q: say in this test why a new one is safe", postable, want)
	}
}

// TestRow16Events shows what a guest may not put into an event. The host makes the envelope, so
// only the data come from the guest.
func TestRow16Events(t *testing.T) {
	good := `{"objective":"x"}`
	if _, err := contract.DecodeData("run.planned", []byte(good)); err != nil {
		t.Fatalf("the control is refused: %v", err)
	}
	for name, data := range map[string]string{
		"another user":     `{"objective":"x","user":"someone"}`,
		"another source":   `{"objective":"x","source":"/computers/aaaaaaaaaaaaaaaa/user"}`,
		"a past time":      `{"objective":"x","time":"2001-01-01T00:00:00Z"}`,
		"an id":            `{"objective":"x","id":"0190b3a0-0000-7000-8000-000000000000"}`,
		"two documents":    good + good,
		"same key twice":   `{"objective":"x","objective":"y"}`,
		"another spelling": `{"Objective":"x"}`,
		"a giant":          fmt.Sprintf(`{"objective":%q}`, strings.Repeat("x", 4<<20)),
	} {
		var lenient map[string]any
		if err := json.NewDecoder(strings.NewReader(data)).Decode(&lenient); err != nil {
			t.Fatalf("%s: the control, a lenient reader, refuses it: %v", name, err)
		}
		if _, err := contract.DecodeData("run.planned", []byte(data)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	invalid := []byte("{\"objective\":\"a\xff\xfe\"}")
	var lenient map[string]any
	if err := json.Unmarshal(invalid, &lenient); err != nil {
		t.Fatalf("the control refuses invalid UTF-8: %v", err)
	}
	if _, err := contract.DecodeData("run.planned", invalid); err == nil {
		t.Error("invalid UTF-8 is taken")
	}
	for _, unknown := range []string{"no.such", "", "log.>", "run.planned.", "RUN.PLANNED"} {
		if _, err := contract.DecodeData(unknown, []byte(good)); err == nil {
			t.Errorf("the type %q is taken", unknown)
		}
		for _, kind := range contract.BoxKinds {
			if contract.MayPost(kind, unknown) {
				t.Errorf("a %s box may post %q", kind, unknown)
			}
		}
	}
}
