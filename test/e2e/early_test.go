package e2e_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	_ "modernc.org/sqlite"

	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// holdWake prevents the next start's computer from waking until release is called, by a transaction
// on its state.
func holdWake(t *testing.T, data string) (release func()) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(data, "computers", "*", "state.sqlite"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: files[0], RawQuery: "_txlock=immediate"}).String())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(context.Background(), nil) // it ends with release
	if err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		if err := errors.Join(tx.Rollback(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release)
	return release
}

// connected counts the connections to a port of this machine.
func connected(t *testing.T, port string) int {
	t.Helper()
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(b)) {
		// sl, local address, remote address, state; 01 means established
		if f := strings.Fields(line); len(f) > 3 && f[1] == fmt.Sprintf("0100007F:%04X", n) && f[3] == "01" {
			count++
		}
	}
	return count
}

// TestWhoComesEarlyIsServedOnceItIsAwake shows that a request for a computer that is waking, in
// whatever way, waits and is then served, and never hears that there is no such computer.
func TestWhoComesEarlyIsServedOnceItIsAwake(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	in := choirtest.Start(t, choirtest.Options{Data: data})
	put(t, in, "workspace/kept", "one")
	d := enter(t, in)
	d.bus.Close()
	port := mustParse(t, in.ClaimURL).Port()
	in.Stop(t)
	release := holdWake(t, data)
	in, err := choirtest.TryStart(t, choirtest.Options{Data: data, Args: []string{"--listen", "127.0.0.1:" + port}})
	if err != nil {
		t.Fatal(err)
	}
	state := func() view.ComputerState {
		var list []view.Computer
		if err := json.Unmarshal(in.Get(t, "/api/computers"), &list); err != nil || len(list) != 1 {
			t.Fatalf("%v, %+v", err, list)
		}
		return list[0].State
	}
	choirtest.Eventually(t, time.Minute, "it is waking", func() bool { return state() == view.StateWaking })

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cli := func(want string, args ...string) func() error {
		return func() error {
			r, err := in.Run(ctx, args...)
			if err == nil && (r.Code != 0 || !strings.Contains(r.Stdout, want)) {
				err = fmt.Errorf("exit %d: %s%s", r.Code, r.Stdout, r.Stderr)
			}
			return err
		}
	}
	// web sends a request as a page does; want has to be in the beginning of the answer.
	web := func(want, method, to string, h http.Header) func() error {
		return func() error {
			req, err := http.NewRequestWithContext(ctx, method, to, nil)
			if err != nil {
				return err
			}
			req.Header = h
			res, err := d.http.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			var b []byte
			for chunk := make([]byte, 4<<10); err == nil && len(b) < 64<<10 && !strings.Contains(string(b), want); { // a stream never ends
				var n int
				n, err = res.Body.Read(chunk)
				b = append(b, chunk[:n]...)
			}
			if res.StatusCode != http.StatusOK || !strings.Contains(string(b), want) {
				return fmt.Errorf("%s: %.300s (%v)", res.Status, b, err)
			}
			return nil
		}
	}
	at := d.console + "/api/computers/" + string(d.cid)
	console := http.Header{"Origin": {d.console}, "Sec-Fetch-Site": {"same-origin"}, "Cookie": {d.session}}
	frame := http.Header{"Sec-Fetch-Site": {"same-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"iframe"}, "Cookie": {d.cookie}}
	doors := map[string]func() error{
		"choir events":      cli("computer.created", "events"),
		"choir exec":        cli("one", "exec", "--", "cat", "workspace/kept"),
		"choir checkpoints": cli("", "checkpoints"),
		"choir prompt":      cli("", "prompt", "Say hello"),
		"the API":           web(`"sequence"`, http.MethodGet, at, console),
		"a ticket":          web(`"ticket"`, http.MethodPost, at+"/ticket", console),
		"the console":       web("event: frame", http.MethodGet, at+"/frame/stream", console),
		"the page":          web("<html", http.MethodGet, d.origin+"/", frame),
		"its session":       web(`"nats"`, http.MethodGet, d.origin+"/_choir/session", d.page()),
		"the bus": func() error {
			ws, _, err := websocket.Dial(ctx, strings.Replace(d.origin, "http", "ws", 1)+"/_choir/nats", &websocket.DialOptions{HTTPClient: d.http, HTTPHeader: d.page()})
			if err == nil {
				err = ws.CloseNow()
			}
			return err
		},
	}
	type outcome struct {
		door string
		err  error
	}
	outcomes := make(chan outcome, len(doors))
	for door, f := range doors {
		go func() { outcomes <- outcome{door, f()} }()
	}
	choirtest.Eventually(t, time.Minute, "all have asked", func() bool { return connected(t, port) >= len(doors) })
	select {
	case o := <-outcomes:
		t.Errorf("%s was answered while the computer was waking: %v", o.door, o.err)
	default:
	}
	if s := state(); s != view.StateWaking {
		t.Fatalf("it is %s", s)
	}
	release()
	for range doors {
		if o := <-outcomes; o.err != nil {
			t.Errorf("%s: %v", o.door, o.err)
		}
	}
}
