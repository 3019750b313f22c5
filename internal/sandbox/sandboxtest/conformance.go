package sandboxtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/guest"
	"choir.dev/choiros/internal/sandbox"
)

// Conformance is the suite that every driver passes. open makes a driver for
// one test and closes it at its end.
func Conformance(t *testing.T, open func(t *testing.T) sandbox.Driver) {
	tests := []struct {
		name string
		run  func(t *testing.T, e *Env)
	}{
		{"Exec", testExec}, {"ExecLimits", testExecLimits}, {"ExecCancel", testExecCancel}, {"Stdin", testStdin},
		{"PTY", testPTY}, {"Forward", testForward}, {"Files", testFiles}, {"Calls", testCalls}, {"Proxy", testProxy}, {"Model", testModel},
		{"Empty", testEmpty}, {"Volumes", testVolumes}, {"Mounts", testMounts}, {"Overlay", testOverlay}, {"Layers", testLayers}, {"Identity", testIdentity},
		{"Kill", testKill}, {"Pause", testPause}, {"WallTime", testWallTime}, {"Orphans", testOrphans}, {"Clear", testClear}, {"BadSpecs", testBadSpecs},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, NewEnv(t, open(t))) })
	}
}

func testExec(t *testing.T, e *Env) {
	_, g := e.Box(t, sandbox.BoxSpec{Mounts: []sandbox.Mount{e.LiveMount()}, Env: map[string]string{"GIVEN": "by the box"}})
	r := Run(t, g, "sh", "-c", "echo out; echo err >&2; exit 7")
	if r.Code != 7 || r.Out != "out\n" || r.Err != "err\n" {
		t.Errorf("got %+v", r)
	}
	if r = Run(t, g, "pwd"); r.Out != "/computer\n" {
		t.Errorf("commands start in %q", r.Out)
	}
	if r = Run(t, g, "sh", "-c", "kill -TERM $$"); r.Code != 143 || r.Signal != "SIGTERM" {
		t.Errorf("a command ended by SIGTERM gave %+v", r)
	}
	r, err := TryRun(t, g, guest.ExecRequest{Argv: []string{"sh", "-c", "echo $GIVEN $MORE; pwd"}, Dir: "/tmp", Env: map[string]string{"MORE": "and more"}})
	if err != nil || r.Out != "by the box and more\n/tmp\n" {
		t.Errorf("env and dir: %v %+v", err, r)
	}
	if _, err := TryRun(t, g, guest.ExecRequest{Argv: []string{"no-such-command"}}); !fault.Is(err, fault.NotFound) {
		t.Errorf("no such command gave %v, want not_found", err)
	}
	for what, argv := range map[string][]string{"no program": {"/etc/passwd"}, "a word that is too long for the kernel": {"true", strings.Repeat("x", 200<<10)}} {
		if _, err := TryRun(t, g, guest.ExecRequest{Argv: argv}); !fault.Is(err, fault.Denied) {
			t.Errorf("%s gave %v, want denied", what, err)
		}
	}
	if r, err := TryRun(t, g, guest.ExecRequest{Argv: append([]string{"sh", "-c", "echo $#", "sh"}, slices.Repeat([]string{"x"}, 20_000)...)}); err != nil || r.Out != "20000\n" {
		t.Errorf("20,000 words: %v %+v", err, r)
	}
	for _, req := range []guest.ExecRequest{{}, {Argv: []string{"true"}, Dir: "/nowhere"}, {Argv: []string{"a\x00b"}}, {Argv: []string{"true"}, Env: map[string]string{"A=B": "c"}}, {Argv: []string{"true"}, TimeoutMS: -1}} {
		if _, err := TryRun(t, g, req); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v gave %v, want invalid", req, err)
		}
	}
	// What a command leaves in the background doesn't hold its end up.
	r = Run(t, g, "sh", "-c", "sleep 300 & echo done")
	if r.Out != "done\n" || r.Code != 0 {
		t.Errorf("got %+v", r)
	}
}

func testExecLimits(t *testing.T, e *Env) {
	_, g := e.Box(t, sandbox.BoxSpec{})
	r, err := TryRun(t, g, guest.ExecRequest{Argv: []string{ProbeInside, "long-line", "64"}, HeadBytes: 1000, TailBytes: 500})
	if err != nil || r.Code != 0 {
		t.Fatal(err, r.Code)
	}
	if want := int64(64<<20 - 1500); r.StdoutDropped != want || len(r.Out) != 1500+len(guest.GapLine(want)) {
		t.Errorf("kept %d bytes and dropped %d", len(r.Out), r.StdoutDropped)
	}
	if !strings.HasPrefix(r.Out, "xxx") || !strings.HasSuffix(r.Out, "xxx") || !strings.Contains(r.Out, guest.GapLine(r.StdoutDropped)) {
		t.Error("the gap is not told")
	}
	r, err = TryRun(t, g, guest.ExecRequest{Argv: []string{"sh", "-c", "echo begun; sleep 300"}, TimeoutMS: 200})
	if err != nil || !r.TimedOut || r.Code != 137 || r.Out != "begun\n" {
		t.Errorf("time limit: %v %+v", err, r)
	}
}

func testExecCancel(t *testing.T, e *Env) {
	_, g := e.Box(t, sandbox.BoxSpec{})
	ctx, cancel := context.WithCancel(t.Context())
	pr, pw := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		// A grandchild in a session of its own, and a command that reads no input.
		_, err := g.Exec(ctx, guest.ExecRequest{Argv: []string{"sh", "-c", "setsid sleep 301 & sleep 302 & echo up; wait"}},
			guest.Streams{Stdin: zeros{}, Stdout: pw})
		ended <- err
	}()
	if line, err := bufio.NewReader(pr).ReadString('\n'); line != "up\n" {
		t.Fatal(line, err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	Eventually(t, 10*time.Second, "a cancelled command leaves nothing behind", func() bool {
		h, err := g.Health(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return h.Processes == 1
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func testStdin(t *testing.T, e *Env) {
	_, g := e.Box(t, sandbox.BoxSpec{})
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB, more than any window
	var out bytes.Buffer
	exit, err := g.Exec(t.Context(), guest.ExecRequest{Argv: []string{"cat"}}, guest.Streams{Stdin: bytes.NewReader(big), Stdout: &out})
	if err != nil || exit.Code != 0 || !bytes.Equal(out.Bytes(), big) {
		t.Errorf("cat gave %d of %d bytes, %+v, %v", out.Len(), len(big), exit, err)
	}
	// Input that nobody reads doesn't keep a command from ending.
	if exit, err = g.Exec(t.Context(), guest.ExecRequest{Argv: []string{"true"}}, guest.Streams{Stdin: zeros{}}); err != nil || exit.Code != 0 {
		t.Errorf("true with endless input: %+v %v", exit, err)
	}
}

func testPTY(t *testing.T, e *Env) {
	_, g := e.Box(t, sandbox.BoxSpec{})
	p, err := g.PTY(t.Context(), guest.PTYRequest{Argv: []string{"sh"}, Rows: 30, Cols: 100, Env: map[string]string{"PS1": "> "}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	r := bufio.NewReader(p)
	await := func(want string) {
		t.Helper()
		var seen strings.Builder
		for !strings.Contains(seen.String(), want) {
			b, err := r.ReadByte()
			if err != nil {
				t.Fatalf("waiting for %q: %v after %q", want, err, seen.String())
			}
			seen.WriteByte(b)
		}
	}
	fmt.Fprint(p, "stty size\n")
	await("30 100")
	if err := p.Resize(41, 123); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(p, "stty size; tty\n")
	await("41 123")
	await("/dev/pts/")
	// A signal that is typed before the command has the terminal would be the shell's, and
	// be lost: the command says that it runs. What the terminal echoes of it says otherwise.
	fmt.Fprint(p, "sh -c 'echo u\"\"p; exec sleep 303'\n")
	await("up\r\n")
	Eventually(t, 10*time.Second, "the terminal's command runs", func() bool {
		h, err := g.Health(t.Context())
		return err == nil && h.Processes == 3
	})
	fmt.Fprint(p, "\x03")
	await("> ") // the terminal drops what was typed ahead of a signal
	fmt.Fprint(p, "exit 5\n")
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); err != nil || exit.Code != 5 {
		t.Errorf("got %+v %v", exit, err)
	}
	// Hanging up kills what runs.
	p2, err := g.PTY(t.Context(), guest.PTYRequest{Argv: []string{"sleep", "304"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = p2.Close()
	Eventually(t, 10*time.Second, "a closed terminal's processes end", func() bool {
		h, err := g.Health(t.Context())
		return err == nil && h.Processes == 1
	})
}

func testForward(t *testing.T, e *Env) {
	_, g := e.Box(t, sandbox.BoxSpec{})
	out, pw := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := g.Exec(ctx, guest.ExecRequest{Argv: []string{ProbeInside, "serve", "4321"}}, guest.Streams{Stdout: pw})
		_ = pw.CloseWithError(err)
	}()
	defer func() { cancel(); <-done }()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	hc := &http.Client{Transport: g.Forward(4321)}
	for _, path := range []string{"/", "/a//b/../c?x=1&y=%2F", "/@fs/%2e%2e/x%2Fy"} {
		res, err := hc.Get("http://my.desk.example:7700" + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if want := "my.desk.example:7700 " + path; string(body) != want {
			t.Errorf("asked for %q, the box saw %q", want, body)
		}
	}
	req, _ := http.NewRequest(http.MethodGet, "http://desk/ws", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	res, err := hc.Do(req)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res, err)
	}
	stream := res.Body.(io.ReadWriteCloser)
	defer stream.Close()
	fmt.Fprint(stream, "hello")
	buf := make([]byte, 5)
	if _, err := io.ReadFull(stream, buf); err != nil || string(buf) != "hello" {
		t.Errorf("the upgraded stream gave %q, %v", buf, err)
	}
	if res, err := (&http.Client{Transport: g.Forward(4)}).Get("http://desk/"); err != nil || res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a port where nothing listens: %v %v", res, err)
	}
}

func testFiles(t *testing.T, e *Env) {
	_, g := e.Box(t, sandbox.BoxSpec{Mounts: []sandbox.Mount{e.LiveMount()}})
	ctx := t.Context()
	odd := "a b/Ä%2F#?.txt"
	if err := g.WriteFile(ctx, odd, strings.NewReader("bytes\x00"), 0o755); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(e.Live, odd))
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Fatal(info, err)
	}
	f, n, err := g.ReadFile(ctx, odd)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	_ = f.Close()
	if err != nil || string(data) != "bytes\x00" || n != 6 {
		t.Errorf("read %q (%d) %v", data, n, err)
	}
	secret := filepath.Join(e.Dir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"abs": secret, "rel": "../secret", "etc": "/etc/passwd", "dir": ".."} {
		if err := os.Symlink(target, filepath.Join(e.Live, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(e.Live, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"abs", "rel", "etc", "dir/secret", "fifo", "a b", "../secret", "/etc/passwd", "missing", ""} {
		if f, _, err := g.ReadFile(ctx, name); err == nil {
			_ = f.Close()
			t.Errorf("read %q", name)
		} else if fault.Is(err, fault.Internal) {
			t.Errorf("reading %q gave an error without a code: %v", name, err)
		}
	}
	for _, name := range []string{"dir/new", "../new", "abs/x", ""} {
		if err := g.WriteFile(ctx, name, strings.NewReader("x"), 0o644); err == nil {
			t.Errorf("wrote %q", name)
		}
	}
	if _, err := os.Stat(filepath.Join(e.Dir, "new")); err == nil {
		t.Error("a file appeared outside")
	}
}

func testCalls(t *testing.T, e *Env) {
	asked := make(chan string, 1)
	b, g := e.Box(t, sandbox.BoxSpec{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked <- r.URL.Path })})
	if err := g.Call(t.Context(), "/no/such/service", nil, nil); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
	if h, err := g.Health(t.Context()); err != nil || h.Box != b.ID() || h.Kind != string(b.Kind()) {
		t.Errorf("got %+v %v", h, err)
	}
	if len(asked) != 0 {
		t.Errorf("the host was asked for %s", <-asked)
	}
}

// testModel: what programs ask the model arrives at the host as they sent it, and its answer at them as it
// comes.
func testModel(t *testing.T, e *Env) {
	_, g := e.Box(t, sandbox.BoxSpec{ModelToken: "of-this-box", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(io.LimitReader(r.Body, 100))
		fmt.Fprintf(w, "%s %s?%s %s %s %v\n", r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("Authorization"), b, err)
	})})
	ask := "curl -sS -m 20 --noproxy '*' -H \"Authorization: Bearer $OPENAI_API_KEY\" "
	for _, c := range []struct{ command, out string }{
		{ask + "-d hello $OPENAI_BASE_URL/responses?beta=true", "POST /model/v1/responses?beta=true Bearer of-this-box hello <nil>\n"},
		{ask + "$ANTHROPIC_BASE_URL/v1/models", "GET /model/v1/models? Bearer of-this-box  <nil>\n"},
		{ask + "-o /dev/null -w '%{http_code}' $ANTHROPIC_BASE_URL/events", "404"},
		{ask + "--path-as-is -o /dev/null -w '%{http_code}' $ANTHROPIC_BASE_URL/events/../v1/models", "404"},
	} {
		if r := Run(t, g, "sh", "-c", c.command); r.Out != c.out {
			t.Errorf("%s: exit %d, %q; want %q", c.command, r.Code, r.Out, c.out)
		}
	}
	_, g = e.Box(t, sandbox.BoxSpec{ID: "without", Proxy: true, Handler: http.NotFoundHandler()})
	if r := Run(t, g, "sh", "-c", "echo $OPENAI_API_KEY; curl -s -m 20 --noproxy '*' http://"+guest.ModelAddr+"/v1/models"); r.Out != "\n" || r.Code != 7 {
		t.Errorf("without a token a box is answered: exit %d, %q", r.Code, r.Out)
	}
}

func testProxy(t *testing.T, e *Env) {
	_, g := e.Box(t, sandbox.BoxSpec{Proxy: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != "allowed.example:443" {
			http.Error(w, "not for you", http.StatusForbidden)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n\r\n")
		line, _ := rw.ReadString('\n')
		fmt.Fprintf(conn, "you said %s", line)
	})})
	at := guest.ProxyAddr
	cases := []struct {
		argv []string
		code int
		out  string
	}{
		{[]string{"connect", at, "allowed.example:443", "hello"}, 0, "tunnel: you said hello"},
		{[]string{"socks", at, "allowed.example", "443", "hello"}, 0, "tunnel: you said hello"},
		{[]string{"connect", at, "other.example:443"}, 1, "403"},
		{[]string{"socks", at, "other.example", "443"}, 1, "SOCKS reply 2"},
		{[]string{"get", at, "http://allowed.example/"}, 1, "403"},
	}
	for _, c := range cases {
		if r := Run(t, g, append([]string{ProbeInside}, c.argv...)...); r.Code != c.code || !strings.Contains(r.Out, c.out) {
			t.Errorf("%v: exit %d, %q; want %d, %q", c.argv, r.Code, r.Out, c.code, c.out)
		}
	}
	if r := Run(t, g, "sh", "-c", "echo $HTTPS_PROXY $ALL_PROXY"); r.Out != "http://"+at+" socks5h://"+at+"\n" {
		t.Errorf("the proxy variables are %q", r.Out)
	}
}

// testIdentity: ids and locks are exclusive while a box lives, and free after.
func testIdentity(t *testing.T, e *Env) {
	lock := sandbox.Written("tree")
	if err := e.Computer.Volumes().Make(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	b, _ := e.Box(t, sandbox.BoxSpec{ID: "first", Lock: lock})
	if _, err := e.Computer.Box(t.Context(), sandbox.BoxSpec{ID: "first", Kind: contract.BoxTask}); !fault.Is(err, fault.InUse) {
		t.Errorf("a second box of the same id: %v", err)
	}
	if _, err := e.Computer.Box(t.Context(), sandbox.BoxSpec{ID: "second", Kind: contract.BoxTask, Lock: lock}); !fault.Is(err, fault.InUse) {
		t.Errorf("a second box with the same lock: %v", err)
	}
	if _, err := e.Driver.Open(t.Context(), sandbox.ComputerSpec{CID: contract.NewCID(), Dir: e.Dir}); !fault.Is(err, fault.InUse) {
		t.Errorf("the same computer opened twice: %v", err)
	}
	if n := len(e.Computer.Boxes()); n != 1 {
		t.Errorf("%d boxes live", n)
	}
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	again, _ := e.Box(t, sandbox.BoxSpec{ID: "first", Lock: lock})
	if err := again.Kill(); err != nil {
		t.Fatal(err)
	}
	if n := len(e.Computer.Boxes()); n != 0 {
		t.Errorf("%d boxes live", n)
	}
}

// testKill: nothing of a box outlives Kill, however well it hid.
func testKill(t *testing.T, e *Env) {
	b, g := e.Box(t, sandbox.BoxSpec{Mounts: []sandbox.Mount{e.LiveMount()}})
	if r := Run(t, g, ProbeInside, "daemon", "/computer/beat"); r.Code != 0 {
		t.Fatal(r)
	}
	beat := func() string {
		data, err := os.ReadFile(filepath.Join(e.Live, "beat"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(data)
	}
	Eventually(t, 10*time.Second, "the daemon beats", func() bool { return beat() != "" })
	pending := make(chan error, 1)
	go func() {
		_, err := g.Exec(context.Background(), guest.ExecRequest{Argv: []string{"sleep", "305"}}, guest.Streams{})
		pending <- err
	}()
	Eventually(t, 10*time.Second, "the command runs", func() bool {
		h, err := g.Health(t.Context())
		return err == nil && h.Processes == 3
	})
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	last := beat()
	if err := <-pending; !fault.Is(err, fault.Unavailable) {
		t.Errorf("a command in a killed box ended with %v", err)
	}
	time.Sleep(50 * time.Millisecond) // five times the interval at which the program wrote: one that lives would have written again
	if now := beat(); now != last {
		t.Error("the daemon outlived its box")
	}
	if ended := AwaitEnd(t, b, time.Second); ended.Reason != sandbox.Killed {
		t.Errorf("the box ended with %v", ended)
	}
	if err := b.Kill(); err != nil {
		t.Errorf("killing again: %v", err)
	}
}

func testPause(t *testing.T, e *Env) {
	b, g := e.Box(t, sandbox.BoxSpec{Mounts: []sandbox.Mount{e.LiveMount()}})
	if r := Run(t, g, ProbeInside, "daemon", "/computer/beat"); r.Code != 0 {
		t.Fatal(r)
	}
	beat := func() string { data, _ := os.ReadFile(filepath.Join(e.Live, "beat")); return string(data) }
	Eventually(t, 10*time.Second, "the daemon beats", func() bool { return beat() != "" })
	if err := e.Computer.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := beat()
	time.Sleep(50 * time.Millisecond)
	if beat() != last {
		t.Error("a paused box goes on")
	}
	if _, err := g.Health(t.Context()); err != nil {
		t.Errorf("a paused box's guest: %v", err)
	}
	if err := e.Computer.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	Eventually(t, 10*time.Second, "the daemon beats again", func() bool { return beat() != last })
	if u, err := b.Usage(t.Context()); err != nil || u.Wall <= 0 {
		t.Errorf("usage %+v %v", u, err)
	}
}

func testWallTime(t *testing.T, e *Env) {
	b, _ := e.Box(t, sandbox.BoxSpec{Limits: sandbox.Limits{WallTime: 300 * time.Millisecond}})
	if ended := AwaitEnd(t, b, 20*time.Second); ended.Reason != sandbox.TimedOut || ended.Code() != fault.Timeout {
		t.Errorf("got %v", ended)
	}
}

// testOrphans: a box whose guest ends reports a crash and leaves nothing.
func testOrphans(t *testing.T, e *Env) {
	b, g := e.Box(t, sandbox.BoxSpec{})
	for range 50 {
		if r := Run(t, g, "sh", "-c", "(sleep 0.01 &) ; exit 0"); r.Code != 0 {
			t.Fatal(r)
		}
	}
	Eventually(t, 10*time.Second, "orphans are buried", func() bool {
		r := Run(t, g, "sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ' Z ' || true")
		return strings.TrimSpace(r.Out) == "0"
	})
	_ = b.Tether().Close()
	if ended := AwaitEnd(t, b, 20*time.Second); ended.Reason != sandbox.Crashed {
		t.Errorf("a box without its tether ended with %v", ended)
	}
}

func testBadSpecs(t *testing.T, e *Env) {
	task, live := contract.BoxTask, sandbox.Live("")
	for name, spec := range map[string]sandbox.BoxSpec{
		"no id":           {Kind: task},
		"id with slash":   {ID: "a/b", Kind: task},
		"id with dots":    {ID: "..", Kind: task},
		"no kind":         {ID: "x"},
		"unknown kind":    {ID: "x", Kind: "root"},
		"over usr":        {ID: "x", Kind: task, Mounts: []sandbox.Mount{{Source: live, Target: "/usr", Mode: sandbox.ReadWrite}}},
		"inside proc":     {ID: "x", Kind: task, Mounts: []sandbox.Mount{{Source: live, Target: "/proc/x", Mode: sandbox.ReadWrite}}},
		"no volume":       {ID: "x", Kind: task, Mounts: []sandbox.Mount{{Target: "/x", Mode: sandbox.ReadOnly}}},
		"foreign cache":   {ID: "x", Kind: task, Mounts: []sandbox.Mount{{Source: sandbox.Cache("workspace/x"), Target: "/x", Mode: sandbox.ReadOnly}}},
		"path outside":    {ID: "x", Kind: task, Mounts: []sandbox.Mount{{Source: sandbox.Volume{Kind: sandbox.VolumeLive, Path: "../x"}, Target: "/x", Mode: sandbox.ReadOnly}}},
		"name outside":    {ID: "x", Kind: task, Mounts: []sandbox.Mount{{Source: sandbox.Snapshot(".."), Target: "/x", Mode: sandbox.ReadOnly}}},
		"dots in target":  {ID: "x", Kind: task, Mounts: []sandbox.Mount{{Source: live, Target: "/x/../usr", Mode: sandbox.ReadOnly}}},
		"no mode":         {ID: "x", Kind: task, Mounts: []sandbox.Mount{{Source: live, Target: "/x"}}},
		"upper of others": {ID: "x", Kind: task, Mounts: []sandbox.Mount{{Target: "/x", Mode: sandbox.Overlay, Lower: []sandbox.Volume{live}, Upper: live}}},
		"all the uppers":  {ID: "x", Kind: task, Mounts: []sandbox.Mount{{Target: "/x", Mode: sandbox.Overlay, Lower: []sandbox.Volume{live}, Upper: sandbox.Written("")}}},
		"no such holder":  {ID: "x", Kind: task, Lock: sandbox.Snapshot("x")},
		"two sources":     {ID: "x", Kind: task, Mounts: []sandbox.Mount{{Target: "/x", Mode: sandbox.ReadOnly, Source: live, Lower: []sandbox.Volume{live}}}},
	} {
		if _, err := e.Computer.Box(t.Context(), spec); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: got %v, want invalid", name, err)
		}
	}
	if _, err := e.Computer.Box(t.Context(), sandbox.BoxSpec{ID: "x", Kind: task, Mounts: []sandbox.Mount{{Source: sandbox.Live("absent"), Target: "/x", Mode: sandbox.ReadOnly}}}); err == nil {
		t.Error("a box with a mount that isn't there was opened")
	}
	if left, _ := filepath.Glob(filepath.Join(e.Dir, "boxes", "[^.]*")); len(left) != 0 {
		t.Errorf("boxes that weren't opened left %v", left)
	}
}
