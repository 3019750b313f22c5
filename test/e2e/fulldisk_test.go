package e2e_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
	"choir.dev/choiros/test/modelserver"
)

// These are the answers on a full disk.
const (
	done    = "done"            // it is done, using the log's reserve
	lacking = "refused"         // 507, disk_full, and what to free
	either  = "done or refused" // what it writes may fit into an existing page
)

// door is one way to store, remove or read something.
type door struct {
	name   string
	method string // a request of the API below the computer, or below the root if path begins with /; "bus": on the desktop's bus; "cli": by the command line
	path   string
	body   any // JSON; []byte is sent unchanged
	header http.Header
	tight  string // the answer while the log has its reserve
	full   string // the answer when the reserve is used up as well
	runs   bool   // a run that has not ended refuses it too; if the run can end, it is waited for
}

// answer is the answer of a door.
type answer struct {
	status             int
	code, detail, hint string
	text               string
}

// fullDisk is a computer on a small disk.
type fullDisk struct {
	*testing.T
	dir  string
	opts choirtest.Options
	in   *choirtest.Instance
	desk *desk
	fill int
}

func tarOf(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "x", Mode: 0o644, Size: int64(size)}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (f *fullDisk) held() bool {
	_, err := os.Stat(filepath.Join(f.opts.Data, "reserve"))
	return err == nil
}

// top fills the free space to the last byte.
func (f *fullDisk) top() {
	f.Helper()
	f.fill++
	fillDisk(f.T, filepath.Join(f.dir, fmt.Sprint("ballast", f.fill)))
}

// free removes what filled the disk.
func (f *fullDisk) free() {
	f.Helper()
	for ; f.fill > 0; f.fill-- {
		if err := os.Remove(filepath.Join(f.dir, fmt.Sprint("ballast", f.fill))); err != nil {
			f.Fatal(err)
		}
	}
	choirtest.Eventually(f.T, 60*time.Second, "the reserve is held again", f.held)
}

// knock tries a door, with a short limit of time.
func (f *fullDisk) knock(d door) (a answer) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), 45*time.Second)
	defer cancel()
	body, raw := d.body.([]byte)
	if !raw && d.body != nil {
		var err error
		if body, err = json.Marshal(d.body); err != nil {
			f.Fatal(err)
		}
	}
	if d.method == "bus" {
		if f.desk.bus.IsClosed() {
			f.desk.connect(f.T) // as the page does after the store was restarted
		}
		msg, err := f.desk.bus.RequestWithContext(ctx, strings.ReplaceAll(d.path, "CID", string(f.desk.cid)), body)
		if err != nil {
			f.Errorf("%s: %v", d.name, err)
			return a
		}
		var e struct {
			Error struct{ Code, Message, Hint string }
		}
		if err := json.Unmarshal(msg.Data, &e); err != nil {
			f.Fatal(err)
		}
		a = answer{status: http.StatusOK, code: e.Error.Code, detail: e.Error.Message, hint: e.Error.Hint, text: string(msg.Data)}
		if a.code == "disk_full" {
			a.status = http.StatusInsufficientStorage
		} else if a.code != "" {
			a.status = http.StatusInternalServerError
		}
		return a
	}
	var resp *http.Response
	if d.header != nil {
		req, err := http.NewRequestWithContext(ctx, d.method, d.path, bytes.NewReader(body))
		if err != nil {
			f.Fatal(err)
		}
		req.Header = d.header
		if resp, err = f.desk.http.Do(req); err != nil {
			f.Errorf("%s: %v", d.name, err)
			return a
		}
	} else {
		path := "/api/computers/-" + d.path
		if rest, ok := strings.CutPrefix(d.path, "//"); ok {
			path = "/" + rest
		}
		resp = request(f.T, ctx, f.in, d.method, path, bytes.NewReader(body))
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.Errorf("%s: status %d, and then %v", d.name, resp.StatusCode, err)
	}
	a = answer{status: resp.StatusCode, text: string(b)}
	var p struct{ Code, Detail, Hint string }
	if resp.StatusCode >= 300 && json.Unmarshal(b, &p) == nil {
		a.code, a.detail, a.hint = p.Code, p.Detail, p.Hint
	}
	return a
}

// knockInTime is a knock that must be answered soon.
func (f *fullDisk) knockInTime(d door) answer {
	f.Helper()
	start := time.Now()
	a := f.knock(d)
	if took := time.Since(start); took > 30*time.Second {
		f.Errorf("%s: it took %v to answer", d.name, took)
	}
	return a
}

// atWork reports whether an undo was refused because of a run that has not ended, which the error
// has to name.
func atWork(a answer) bool {
	return a.code == "conflict" && strings.Contains(a.text, "is still at work") && strings.Contains(a.text, "choir run cancel ")
}

// expect knocks and compares the answer with the expected one.
func (f *fullDisk) expect(d door, want string) {
	f.Helper()
	a := f.knockInTime(d)
	if d.runs && atWork(a) {
		if want == lacking {
			return // the end of the run can't be stored either; the refusal changed nothing
		}
		choirtest.Eventually(f.T, 60*time.Second, d.name+": the run ends", func() bool { a = f.knockInTime(d); return !atWork(a) })
	}
	text := fmt.Sprintf("%s: %d %s: %.300s", d.name, a.status, a.code, a.text)
	switch {
	case a.status == http.StatusInsufficientStorage && want != done:
		if a.code != "disk_full" || !strings.Contains(a.hint, "Free some space") || a.detail == "" {
			f.Errorf("%s; want disk_full and what to free", text)
		}
		if strings.Contains(a.text, f.dir) {
			f.Errorf("%s: it names a path of the host", text)
		}
	case a.status >= 200 && a.status < 300 && want != lacking && !strings.Contains(a.text, `"ok":false`):
		// The status of an exec is 200 before its result is known.
		if i := strings.Index(a.text, `"code":`); d.path == "/exec" && i >= 0 {
			f.Errorf("%s: it began, and then failed", text)
		}
	default:
		f.Errorf("%s; want it %s", text, want)
	}
}

// proposes are the turns of a task that writes into the document of another run, and that ends when
// it is released.
func proposes(what string) []modelserver.Turn {
	task := object{"kind": "agent", "goal": "Add to " + what + " in {{path}}", "tools": []any{"read", "edit"}, "verify": object{"profile": "none"}}
	first := delegate(task)
	first.Capture = map[string]string{"path": `(artifacts/runs/[a-z0-9-]+\.md)`}
	held := finish("ok", "Added a line.")
	held.Hold = what
	return join(turnsOf("director", "Add words to "+what, first), turnsOf("associate", "Add to "+what,
		modelserver.Turn{Calls: call("read", object{"path": "{{path}}"})},
		modelserver.Turn{Calls: call("edit", object{"path": "{{path}}", "old": "## Notes\n", "new": "## Notes\n\nThe words of the task.\n"})},
		held))
}

// proposed makes a task and the user change the same line of a document. It returns a function that
// checks that the resulting proposal is open and had no effect, or that it is accepted, and the
// door that accepts it.
func (f *fullDisk) proposed(s *modelserver.Server, what string) (look func(status string), accept door) {
	f.Helper()
	f.in.Must(f.T, "prompt", "--wait", "Begin "+what)
	type event struct {
		Subject string
		Data    struct{ Path, Proposal string }
	}
	var revised []event
	var document string
	lines := func(kind string) {
		revised = nil
		for line := range strings.Lines(f.in.Must(f.T, "events", "--json", "--type", kind)) {
			var e event
			decode(f.T, []byte(line), &e)
			if document == "" || kind == "document.proposed" || e.Subject == document {
				revised = append(revised, e)
			}
		}
	}
	lines("document.revised")
	document = revised[0].Subject
	path := revised[0].Data.Path
	choirtest.Eventually(f.T, time.Minute, "the document has its file", func() bool {
		r, err := f.in.Run(f.Context(), "files", "cat", path)
		return err == nil && strings.Contains(r.Stdout, "## Notes\n")
	})
	f.in.Must(f.T, "prompt", "Add words to "+what+" in "+path)
	choirtest.Eventually(f.T, time.Minute, "the task has edited it", func() bool { return s.Held(what) })
	put(f.T, f.in, path, strings.Replace(f.in.Must(f.T, "files", "cat", path), "## Notes\n", "## Notes\n\nMine.\n", 1))
	s.Release(what)
	choirtest.Eventually(f.T, time.Minute, "its words are proposed", func() bool { lines("document.proposed"); return len(revised) == 1 })
	at := "/documents/" + document + "/proposals/" + revised[0].Data.Proposal
	lines("document.revised")
	before := len(revised)
	return func(status string) {
		f.Helper()
		a := f.knock(door{name: "the proposal", method: "GET", path: at})
		lines("document.revised")
		words := strings.Contains(f.in.Must(f.T, "files", "cat", path), "The words of the task.")
		if !strings.Contains(a.text, `"status":"`+status+`"`) || (len(revised) > before) != (status == "accepted") {
			f.Errorf("the proposal is %.200s, with %d revisions of %d; want it %s", a.text, len(revised), before, status)
		}
		if status == "accepted" {
			choirtest.Eventually(f.T, 30*time.Second, "its words are in the file", func() bool {
				return strings.Contains(f.in.Must(f.T, "files", "cat", path), "The words of the task.")
			})
		} else if words {
			f.Error("its words are in the file, and it is open")
		}
	}, door{name: "accept a proposal", method: "POST", path: at + "/accept"}
}

// TestEveryDoorOnAFullDisk knocks at every door twice: when the disk is full and the log uses its
// reserve, and when that is used up as well. What can't be stored is refused with 507, disk_full
// and what to free; reading still works; everything that was acknowledged stays; and once there is
// space everything works again without a restart.
func TestEveryDoorOnAFullDisk(t *testing.T) {
	t.Parallel()
	if dir := onSmallDisk(t, "384m"); dir != "" {
		everyDoorOnAFullDisk(t, choirtest.Options{Data: filepath.Join(dir, "data")}, dir)
	}
}

// TestEveryDoorOnAFullDiskAsAUser does the same with choir running as an ordinary user, whose
// keeper and boxes write in a user namespace. If the tests do not run as root, the test before this
// one has done that already.
func TestEveryDoorOnAFullDiskAsAUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return
	}
	dir := onSmallDisk(t, "384m")
	if dir == "" {
		return
	}
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // choir has to reach its disk
		t.Fatal(err)
	}
	everyDoorOnAFullDisk(t, choirtest.Options{Data: filepath.Join(dir, "data"), User: nobody}, dir)
}

// nobody is a user without any rights.
const nobody = 65534

func everyDoorOnAFullDisk(t *testing.T, opts choirtest.Options, dir string) {
	t.Helper()
	task := object{"kind": "agent", "goal": "reach out", "tools": []any{"bash"}, "verify": object{"profile": "none"},
		"egress": object{"profile": "custom", "allow": []any{"docs.example:443"}, "reason": "the docs are there"}, "want": object{"logs": true}}
	s := modelserver.New(modelserver.Script{Turns: join(
		turnsOf("director", "who is there", delegate(task)),
		proposes("the plan"),
		[]modelserver.Turn{
			{Role: "director", Calls: call("report", object{"status": "done", "summary": "Done."}), Repeat: true},
			{Text: "ready", Repeat: true},
		},
	)}).Start()
	t.Cleanup(s.Close)
	opts.Env = append(modelEnv(s, modelserver.Anthropic, newKey()), "CHOIR_STORAGE_RESERVE_MB=24", "CHOIR_APPROVALS_WAIT_S=3000")
	f := &fullDisk{T: t, dir: dir, opts: opts}
	f.in = choirtest.Start(t, f.opts)
	f.desk = enter(t, f.in)
	for _, name := range []string{"keep.txt", "gone1.txt", "gone2.txt"} {
		put(t, f.in, "workspace/"+name, "one")
	}
	f.in.Must(t, "checkpoint", "-m", "one")
	var points []struct{ ID string }
	f.in.JSON(t, &points, "checkpoints")
	put(t, f.in, "workspace/keep.txt", "two")
	f.in.Must(t, "checkpoint", "-m", "two")
	if r, err := f.in.RunInput(t.Context(), []byte("value"), "secrets", "set", "held"); err != nil || r.Code != 0 {
		t.Fatalf("%v %+v", err, r)
	}
	proposal, accept := f.proposed(s, "the plan")
	if r, err := f.in.Run(t.Context(), "prompt", "--wait", "--json", "who is there?"); err != nil || r.Code != 4 {
		t.Fatalf("%v %+v", err, r)
	}
	var asked []view.Approval
	f.in.JSON(t, &asked, "approvals")
	var link view.Link
	decode(t, []byte(f.knock(door{name: "link", method: "POST", path: "//api/links"}).text), &link)
	token := mustParse(t, link.URL).Fragment
	own := http.Header{"Origin": {f.desk.console}, "Sec-Fetch-Site": {"same-origin"}, "Content-Type": {"application/json"}}
	signed := own.Clone()
	signed.Set("Cookie", f.desk.session)
	page := f.desk.page()
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "file"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	window := func(n int) object {
		return object{"id": contract.NewID(), "type": "window.opened", "subject": fmt.Sprint("window/w", n), "data": object{"window": fmt.Sprint("w", n), "app": "files", "title": "Files",
			"frame": object{"x": 1, "y": 1, "w": 300, "h": 200}, "state": "normal"}}
	}
	run := asked[0].Run
	doors := func(n int) []door {
		return []door{
			{name: "put, small", method: "PUT", path: "/content?path=workspace/small", body: []byte("x"), tight: lacking, full: lacking},
			{name: "put, large", method: "PUT", path: "/content?path=workspace/large", body: make([]byte, 4<<20), tight: lacking, full: lacking},
			{name: "put, over another", method: "PUT", path: "/content?path=workspace/keep.txt", body: []byte("three"), tight: lacking, full: lacking},
			{name: "put, in a new folder", method: "PUT", path: "/content?path=workspace/a/b/c", body: []byte("x"), tight: lacking, full: lacking},
			{name: "a dropped file", method: "POST", path: f.desk.origin + "/_choir/files?name=dropped.txt", body: []byte("x"), header: page, tight: lacking, full: lacking},
			{name: "add, a folder", method: "POST", path: fmt.Sprint("/add/tar?name=folder", n), body: tarOf(t, 100), tight: lacking, full: lacking},
			{name: "add, a large folder", method: "POST", path: fmt.Sprint("/add/tar?name=large", n), body: tarOf(t, 4<<20), tight: lacking, full: lacking},
			{name: "models test", method: "POST", path: "//api/models/test", body: object{}, tight: either, full: lacking},
			{name: "prompt", method: "POST", path: "/prompts", body: object{"text": "hello"}, tight: done, full: lacking},
			{name: "exec", method: "POST", path: "/exec", body: []byte(`{"argv":["true"]}` + "\n"), tight: done, full: lacking},
			{name: "checkpoint", method: "POST", path: "/checkpoints", body: object{}, tight: done, full: either},
			{name: "restore", method: "POST", path: "/restore", body: object{"to": points[0].ID, "paths": []string{"workspace/keep.txt"}}, tight: done, full: lacking},
			{name: "undo", method: "POST", path: "/undo", body: object{}, tight: done, full: lacking, runs: true},
			{name: "rewind", method: "POST", path: "/rewind", body: object{}, tight: done, full: lacking},
			{name: "secret, set", method: "PUT", path: "//api/secrets/one", body: object{"value": strings.Repeat("x", 9000)}, tight: done, full: lacking},
			{name: "rename", method: "PATCH", path: "", body: object{"name": fmt.Sprint("Other ", n)}, tight: done, full: lacking},
			{name: "steer", method: "POST", path: "/runs/" + run + "/steer", body: object{"text": "go on"}, tight: done, full: lacking},
			{name: "pause", method: "POST", path: "/runs/" + run + "/pause", tight: done, full: lacking},
			{name: "rebuild", method: "POST", path: "/rebuild", body: object{}, tight: done, full: lacking},
			{name: "remove", method: "DELETE", path: fmt.Sprint("/content?path=workspace/gone", n, ".txt"), tight: done, full: lacking},
			{name: "the desktop's action", method: "bus", path: "user.CID.action", body: window(n), tight: done, full: lacking},
			{name: "the desktop's prompt", method: "bus", path: "user.CID.action", body: object{"id": contract.NewID(), "type": "prompt.submitted", "data": object{"text": "hi"}}, tight: done, full: lacking},
			{name: "the desktop's checkpoint", method: "bus", path: "svc.CID.checkpoint.create", body: object{}, tight: done, full: either},
			{name: "the desktop's undo", method: "bus", path: "svc.CID.checkpoint.undo", body: object{}, tight: done, full: lacking, runs: true},
			{name: "the desktop's command", method: "bus", path: "svc.CID.exec.run", body: object{"id": contract.NewID(), "argv": []string{"true"}}, tight: done, full: lacking},
			{name: "link", method: "POST", path: "//api/links", tight: done, full: either},
			{name: "ticket", method: "POST", path: f.desk.console + "/api/computers/" + string(f.desk.cid) + "/ticket", header: signed, tight: done, full: either},

			{name: "events", method: "GET", path: "/events", tight: done, full: done},
			{name: "files", method: "GET", path: "/files?path=workspace", tight: done, full: done},
			{name: "content", method: "GET", path: "/content?path=workspace/keep.txt", tight: done, full: done},
			{name: "checkpoints", method: "GET", path: "/checkpoints", tight: done, full: done},
			{name: "diff of checkpoints", method: "GET", path: "/diff?from=" + points[1].ID + "&to=" + points[0].ID, tight: done, full: done},
			{name: "frame", method: "GET", path: "/frame", tight: done, full: done},
			{name: "runs", method: "GET", path: "/runs", tight: done, full: done},
			{name: "approvals", method: "GET", path: "/approvals", tight: done, full: done},
			{name: "doctor", method: "GET", path: "//api/doctor", tight: done, full: done},
			{name: "secrets", method: "GET", path: "//api/secrets", tight: done, full: done},
			{name: "export", method: "GET", path: "/export", tight: done, full: done},
			{name: "a snapshot", method: "bus", path: "svc.CID.state.snapshot", tight: done, full: done},
		}
	}

	f.top()
	for _, d := range doors(1) {
		f.expect(d, d.tight)
	}
	f.in.Must(t, "exec", "--", "rm", "-f", "workspace/gone1.txt")

	// These write until the reserve is gone, and then another program takes what is left.
	for i := 0; f.held(); i++ {
		if i == 4000 {
			t.Fatal("the reserve is never given back")
		}
		f.knock(door{name: "prompt", method: "POST", path: "/prompts", body: object{"text": strings.Repeat("x", 30_000)}})
	}
	f.top()
	choirtest.Eventually(t, 60*time.Second, "there is no space for a prompt", func() bool {
		f.top()
		return f.knock(door{name: "prompt", method: "POST", path: "/prompts", body: object{"text": strings.Repeat("x", 30_000)}}).status == http.StatusInsufficientStorage
	})
	ids, _ := eventIDs(t, f.in)
	for _, d := range doors(2) {
		f.expect(d, d.full)
	}
	approve := door{name: "approve", method: "POST", path: "/approvals/" + asked[0].ID, body: object{"digest": asked[0].Digest, "answer": "deny"}}
	f.expect(approve, lacking)
	f.expect(accept, lacking)
	proposal("open")
	claim := door{name: "claim", method: "POST", path: f.desk.console + "/api/claim", header: own, body: object{"token": token}}
	claimed := f.knock(claim)
	if claimed.status >= 300 && claimed.code != "disk_full" {
		t.Errorf("claim: %+v", claimed)
	}
	for _, args := range [][]string{
		{"prompt", "hello"}, {"files", "put", "-", "workspace/cli"}, {"exec", "--", "true"}, {"undo"}, {"restore", points[0].ID},
		{"secrets", "set", "two"}, {"add", folder}, {"models", "test"}, {"rebuild"}, {"approve", asked[0].ID}, {"run", "cancel", run},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		r, err := f.in.RunInput(ctx, []byte("some input"), args...)
		cancel()
		code := 1
		if args[0] == "exec" {
			code = 125 // any other code may be the command's
		}
		if lines := strings.Split(strings.TrimSpace(r.Stderr), "\n"); err != nil || r.Code != code || len(lines) != 1 || !strings.Contains(r.Stderr, "Free some space") && !(args[0] == "undo" && strings.Contains(r.Stderr, "is still at work")) {
			t.Errorf("choir %s: %v %+v; want code %d and one sentence with what to free", strings.Join(args, " "), err, r, code)
		}
	}
	space := findings(t, choirtest.Result{Stdout: f.knock(door{name: "doctor", method: "GET", path: "//api/doctor"}).text})["space"]
	if space.Status != "warn" || !strings.Contains(space.Detail, "it takes: ") || !strings.Contains(space.Detail, "/workspace ") || space.Hint == "" {
		t.Errorf("doctor says of the space: %+v", space)
	}

	f.free()
	for _, d := range doors(3) {
		if d.name == "remove" || d.name == "pause" {
			continue
		}
		d := d
		choirtest.Eventually(t, 60*time.Second, d.name+" goes on", func() bool { return f.knock(d).status/100 == 2 })
	}
	f.expect(approve, done)
	proposal("open")
	f.expect(accept, done)
	proposal("accepted")
	if claimed.status >= 300 {
		f.expect(claim, done)
	}
	usable(t, f.in)
	check := func(when string) {
		t.Helper()
		after, _ := eventIDs(t, f.in)
		for i, id := range ids {
			if i >= len(after) || after[i] != id {
				t.Fatalf("%s: event %d, acknowledged on the full disk, is gone", when, i+1)
			}
		}
	}
	check("without a restart")
	f.in.Stop(t)
	f.in = choirtest.Start(t, f.opts)
	check("after a restart")
	usable(t, f.in)
}

// TestStartAndRecoverOnAFullDisk shows that a start or a recovery for which there is no space fails
// with one sentence, loses nothing, and succeeds once there is space.
func TestStartAndRecoverOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := onSmallDisk(t, "256m")
	if dir == "" {
		return
	}
	f := &fullDisk{T: t, dir: dir, opts: choirtest.Options{Data: filepath.Join(dir, "data"), Env: []string{"CHOIR_STORAGE_RESERVE_MB=16"}}}
	f.in = choirtest.Start(t, f.opts)
	put(t, f.in, "workspace/keep.txt", "kept")
	f.in.Must(t, "checkpoint", "-m", "one")
	ids, _ := eventIDs(t, f.in)
	f.in.Stop(t)
	// The reserve would be used for this, so here it is removed.
	if err := os.Remove(filepath.Join(f.opts.Data, "reserve")); err != nil {
		t.Fatal(err)
	}
	f.top()
	in, err := choirtest.TryStart(t, f.opts)
	switch {
	case err != nil && !strings.Contains(err.Error(), "Free some space"):
		t.Errorf("choir up on a full disk says: %v", err)
	case err == nil:
		c := in.Standing(t)
		if c.Trouble == nil || c.Trouble.Code != "disk_full" || !strings.Contains(c.Trouble.Hint, "Free some space") {
			t.Errorf("choir up came up on a full disk: %+v, %+v", c, c.Trouble)
		}
		in.Stop(t)
	}
	if r := choir(t, []string{"TMPDIR=" + dir}, "doctor", "--data", f.opts.Data, "--json"); !strings.Contains(findings(t, r)["space"].Detail, "/workspace ") {
		t.Errorf("choir doctor on a full disk: %+v", r)
	}
	blocks, err := filepath.Glob(filepath.Join(f.opts.Data, "nats/jetstream/*/streams/*/msgs/*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatal(err)
	}
	st, err := os.Stat(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(blocks[0], st.Size()/2); err != nil {
		t.Fatal(err)
	}
	f.top()
	r := choir(t, nil, "recover", "--data", f.opts.Data)
	lines := strings.Split(strings.TrimSpace(r.Stderr), "\n") // the last one; the others are the store's log
	if r.Code != 1 || !strings.HasPrefix(lines[len(lines)-1], "choir: ") || !strings.Contains(lines[len(lines)-1], "Free some space") {
		t.Errorf("choir recover on a full disk: %+v", r)
	}
	for ; f.fill > 0; f.fill-- {
		if err := os.Remove(filepath.Join(f.dir, fmt.Sprint("ballast", f.fill))); err != nil {
			t.Fatal(err)
		}
	}
	if r := choir(t, nil, "recover", "--data", f.opts.Data); r.Code != 0 {
		t.Fatalf("choir recover with space: %+v", r)
	}
	f.in = choirtest.Start(t, f.opts)
	after, _ := eventIDs(t, f.in)
	for i, id := range ids {
		if i >= len(after) || after[i] != id {
			t.Fatalf("event %d is gone", i+1)
		}
	}
	if got := f.in.Must(t, "files", "cat", "workspace/keep.txt"); got != "kept" {
		t.Errorf("the file is now %q", got)
	}
	usable(t, f.in)
}
