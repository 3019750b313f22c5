package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// site serves pages over TLS, and remembers what was requested.
type site struct {
	mu    sync.Mutex
	asked []string
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.String())
	s.mu.Unlock()
	switch r.URL.Path {
	case "/private":
		http.Redirect(w, r, "https://127.0.0.1:1/secrets", http.StatusFound)
	case "/search":
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"results":[{"title":"Found","url":"https://%s/found","content":"a page that was found"}]}`, r.Host)
	default:
		_, _ = fmt.Fprintf(w, `<html><head><title>Page %s</title></head><body><p>The word of %s is marzipan.</p><p><a href="/steal?q=SECRET">more</a></p></body></html>`, r.URL.Path, r.URL.Path)
	}
}

func (s *site) requested(url string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, a := range s.asked {
		if a == url {
			n++
		}
	}
	return n
}

// TestTheWeb: the text of a page that the user names reaches the model, out of a box that has nothing of the
// computer's; an address that they did not name is asked about on the console, whole, and read once it is
// allowed; a denial, a private host and a search are as they should be.
func TestTheWeb(t *testing.T) {
	t.Parallel()
	pages := &site{}
	srv, ca := tlsServer(t, "127.0.0.1", pages)
	addr := srv.Listener.Addr().String()
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, ca, 0o644); err != nil {
		t.Fatal(err)
	}
	plain := &site{} // the search service is asked by the host, which doesn't trust the pages' certificate
	search := httptest.NewServer(plain)
	defer search.Close()
	seeker := search.URL
	fetch := func(url string) modelserver.Turn {
		return modelserver.Turn{Calls: call("web_fetch", object{"url": url, "reason": "to go on"})}
	}
	script := modelserver.Script{Turns: join(
		director(delegate(object{"kind": "agent", "goal": "read the page", "tools": []any{"web_fetch", "web_search", "bash"}, "verify": object{"profile": "none"}}), report("done", "Read.")),
		turnsOf("associate", "read the page",
			fetch("https://"+addr+"/named"),
			fetch("https://"+addr+"/steal?q=SECRET"),
			fetch("https://"+addr+"/allowed?x=1"),
			fetch("https://"+addr+"/private"),
			modelserver.Turn{Calls: call("web_search", object{"query": "marzipan"})},
			fetch("https://"+addr+"/named"),
			finish("ok", "Read.")),
	)}
	in, models := startModel(t, modelserver.Anthropic, script, "CHOIR_EGRESS_ALLOW_PRIVATE="+addr, "CHOIR_EGRESS_CA_FILE="+caFile, "CHOIR_APPROVALS_WAIT_S=900",
		"CHOIR_SEARCH_PROVIDER=searxng", "CHOIR_SEARCH_BASE_URL="+seeker)
	r, err := in.Run(t.Context(), "prompt", "--wait", "--json", "Read https://"+addr+"/named and https://"+addr+"/private, please.")
	if err != nil || r.Code != 4 {
		t.Fatalf("%v, code %d, want 4: a run that waits for its user\n%s%s", err, r.Code, r.Stdout, r.Stderr)
	}
	next := func(path string) view.Approval {
		t.Helper()
		var list []view.Approval
		choirtest.Eventually(t, 60*time.Second, "an address waits for an answer: "+path, func() bool {
			list = nil
			if err := json.Unmarshal([]byte(in.Must(t, "approvals", "--json")), &list); err != nil {
				t.Fatal(err)
			}
			return len(list) == 1 && strings.Contains(list[0].URL, path)
		})
		return list[0]
	}
	stolen := next("/steal")
	if stolen.Kind != contract.ApprovalFetch || stolen.URL != "https://"+addr+"/steal?q=SECRET" || stolen.Claim != "to go on" {
		t.Errorf("%+v", stolen)
	}
	if said := in.Must(t, "approvals"); !strings.Contains(said, "reading "+stolen.URL) {
		t.Errorf("what choir approvals shows:\n%s", said)
	}
	in.Must(t, "approve", "--deny", stolen.ID)
	in.Must(t, "approve", next("/allowed").ID)
	in.Must(t, "approve", next("127.0.0.1:1/secrets").ID)
	var run view.Run
	choirtest.Eventually(t, 90*time.Second, "the run ends", func() bool {
		run = runOf(t, in, stolen.Run)
		return run.Status.Ended()
	})
	heard := ""
	for _, q := range models.Requests() {
		if q.Role == "associate" {
			heard = q.Text
		}
	}
	for _, want := range []string{"The word of /named is marzipan.", "/steal?q=SECRET was not read: the user denied it", "The word of /allowed is marzipan.",
		"that boxes may not reach (127.0.0.1)", "1. https://" + strings.TrimPrefix(seeker, "http://") + "/found"} {
		if !strings.Contains(heard, want) {
			t.Errorf("the model is not told %q:\n%.6000s", want, heard)
		}
	}
	if n := pages.requested("/steal?q=SECRET"); n != 0 {
		t.Error("an address that was denied was requested")
	}
	if n := pages.requested("/named"); n != 1 {
		t.Errorf("a page was requested %d times", n)
	}
	if res := run.Tasks[0].Result; res == nil || !slices.Equal(res.Egress.Allowed, []string{addr}) || !slices.Equal(res.Egress.Denied, []string{"127.0.0.1:1"}) {
		t.Errorf("the result reports %+v", res)
	}
	// Each page had a box of its own, which was let out to its host alone.
	let := map[string]bool{}
	for _, e := range eventsOf(t, in, "egress.allowed") {
		d := data[contract.EgressDecided](t, e)
		if d.Kind != contract.BoxScratch || e.Run != stolen.Run || let[d.Box] {
			t.Errorf("%+v of run %s", d, e.Run)
		}
		let[d.Box] = true
	}
	if len(let) != 3 {
		t.Errorf("%d boxes were let out", len(let))
	}
	if got := eventsOf(t, in, "page.fetched"); len(got) != 2 {
		t.Errorf("%d pages are on record", len(got))
	}
	if got := eventsOf(t, in, "search.answered"); len(got) != 1 {
		t.Errorf("%d searches are on record", len(got))
	}
}

// TestWithoutASearchService: nobody is told of a tool that is not there.
func TestWithoutASearchService(t *testing.T) {
	t.Parallel()
	script := modelserver.Script{Turns: director(report("done", "Nothing to do."))}
	in, models := startModel(t, modelserver.Anthropic, script)
	prompt(t, in, "hello")
	for _, q := range models.Requests() {
		if strings.Contains(string(q.Body), "web_search") {
			t.Error("a model is told of web_search")
		}
		if q.Role == "director" && !strings.Contains(string(q.Body), "web_fetch") {
			t.Error("the Director is not told of web_fetch")
		}
	}
}
