package attack_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/blob"
	"choir.dev/choiros/internal/blob/disk"
	"choir.dev/choiros/internal/bus"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/gateway"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/newfile"
	"choir.dev/choiros/internal/vault"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

var serviceRows = []Row{
	{Number: 11, Attack: "an archive's entry is named ../", Defences: []defence.Name{defence.ArchiveNames, defence.KeeperBeneath}, Run: imported(entry("../../escaped", "out"))},
	{Number: 11, Attack: "an archive puts a link and then a file behind it", Defences: []defence.Name{defence.KeeperBeneath}, Run: imported(link(tar.TypeSymlink, "way", "../.."), entry("way/escaped", "out"))},
	{Number: 11, Attack: "an archive's hard link to a file outside it", Defences: []defence.Name{defence.ArchiveLinks, defence.KeeperBeneath}, Run: func(t *testing.T) Verdict {
		return importedFile(t, "taken", "the secret", link(tar.TypeLink, "taken", "../../secret"))
	}},
	{Number: 27, Attack: "an archive unpacks to more than its bound", Defences: []defence.Name{defence.ArchiveBytes}, Run: func(t *testing.T) Verdict {
		return importedFile(t, "two", "", entry("one", strings.Repeat("x", 6<<10)), entry("two", strings.Repeat("x", 6<<10)))
	}},
	{Number: 27, Attack: "an archive of more entries than its bound", Defences: []defence.Name{defence.ArchiveEntries}, Run: func(t *testing.T) Verdict {
		var many []tarEntry
		for i := range 60 {
			many = append(many, entry(fmt.Sprintf("%d", i), ""))
		}
		return importedFile(t, "59", "", many...)
	}},
	{Number: 12, Attack: "a hook in the repository runs when the keeper drops a ref that was packed", Defences: []defence.Name{defence.GitForced}, Run: func(t *testing.T) Verdict {
		e, dir := tree(t)
		hooks := filepath.Join(dir, "live/.git/hooks")
		if err := os.MkdirAll(hooks, 0o755); err != nil {
			t.Fatal(err)
		}
		ran := filepath.Join(dir, "ran")
		for path, text := range map[string]string{filepath.Join(hooks, "reference-transaction"): "#!/bin/sh\ntouch " + ran + "\n", filepath.Join(dir, "live/file"): "x"} {
			if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		config, err := os.OpenFile(filepath.Join(dir, "live/.git/config"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = fmt.Fprintf(config, "[core]\n\thooksPath = %s\n", hooks)
		if err = errors.Join(err, config.Close()); err == nil {
			_, err = e.Checkpoint(t.Context(), wire.CheckpointRequest{Note: wire.Note{Kind: "manual", Message: "m"}})
		}
		if task := contract.NewID(); err == nil {
			packed(t, filepath.Join(dir, "live/.git"), task)
			err = e.Drop(t.Context(), task)
		}
		return Verdict{exists(ran), fmt.Sprintf("the hook ran: %v; %v", exists(ran), err)}
	}},
	{Number: 13, Attack: "a computer stores more than its quota, in many pieces", Defences: []defence.Name{defence.BlobQuota}, Run: stored(10, 1<<10)},
	{Number: 13, Attack: "one piece is larger than any may be", Defences: []defence.Name{defence.BlobSize}, Run: stored(1, 3<<10)},
	{Number: 24, Attack: "a sign-in link is used twice", Defences: []defence.Name{defence.IdentityUsed, defence.IdentityForget}, Run: func(t *testing.T) Verdict {
		a := newAccount(t)
		_, _, err := a.ids.Claim(t.Context(), a.link)
		return Verdict{err == nil, fmt.Sprint(err)}
	}},
	{Number: 24, Attack: "a desktop's ticket is used twice", Defences: []defence.Name{defence.IdentityTicket}, Run: func(t *testing.T) Verdict {
		a := newAccount(t)
		ticket, err := a.ids.NewTicket(t.Context(), a.secret, a.cid)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.ids.Enter(t.Context(), ticket, a.cid); err != nil {
			t.Fatal(err)
		}
		_, _, err = a.ids.Enter(t.Context(), ticket, a.cid)
		return Verdict{err == nil, fmt.Sprint(err)}
	}},
	{Number: 30, Attack: "a session goes on after its end", Defences: []defence.Name{defence.IdentityExpiry}, Run: func(t *testing.T) Verdict {
		a := newAccount(t)
		a.now = a.now.Add(identity.SessionTTL + time.Hour)
		_, err := a.ids.Session(t.Context(), a.secret, identity.Console)
		return Verdict{err == nil, fmt.Sprint(err)}
	}},
	{Number: 30, Attack: "a desktop's session is shown to the console", Defences: []defence.Name{defence.IdentityKind}, Run: func(t *testing.T) Verdict {
		a := newAccount(t)
		ticket, err := a.ids.NewTicket(t.Context(), a.secret, a.cid)
		if err != nil {
			t.Fatal(err)
		}
		_, secret, err := a.ids.Enter(t.Context(), ticket, a.cid)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.ids.Session(t.Context(), secret, identity.Console)
		return Verdict{err == nil, fmt.Sprint(err)}
	}},
	{Number: 30, Attack: "a bus client goes on with the credentials of a session that was ended", Defences: []defence.Name{defence.BusLive, defence.BusRevoked}, Run: func(t *testing.T) Verdict {
		b := newBus(t)
		c := mint(t, b, contract.NewCID(), "session")
		if err := b.Revoke("session"); err != nil {
			t.Fatal(err)
		}
		nc, err := dialBus(b, c)
		if err == nil {
			err = nc.Flush()
			nc.Close()
		}
		return Verdict{err == nil, fmt.Sprint(err)}
	}},
	{Number: 32, Attack: "a provider's error repeats our key", Defences: []defence.Name{defence.GatewayKeys}, Run: func(t *testing.T) Verdict {
		// It does not look like any service's key, by which it would be found.
		const key = "Xq7.canary.4f1d0c9be2774a86"
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"message":"what is %s for?","type":"invalid_request_error"}}`, key)
		}))
		defer srv.Close()
		g, err := gateway.New(gateway.Options{
			Keys:         func(context.Context, string) (string, error) { return key, nil },
			LocalBaseURL: "none", OpenAIBaseURL: srv.URL + "/v1", Default: "openai/gpt-5.4", Logger: slog.New(slog.DiscardHandler),
			Meter:  func(context.Context, gateway.Scope, contract.UsageMetered) error { return nil },
			Limits: gateway.Limits{Backoff: time.Millisecond, MaxRetryGap: time.Second, FirstByte: 20 * time.Second, Idle: 20 * time.Second, Wall: 60 * time.Second},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		_, err = g.Turn(t.Context(), gateway.Scope{CID: contract.NewCID(), Run: contract.NewID(), Role: "associate"},
			contract.TurnRequest{MaxTokens: 50, Messages: []contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{Text: "hello"}}}}}, func(string) {})
		if err == nil {
			t.Fatal("the provider's refusal is no error")
		}
		return Verdict{strings.Contains(err.Error(), key), strings.ReplaceAll(err.Error(), key, "KEY")}
	}},
	{Number: 33, Attack: "a client names somebody else's subject as where the answer goes", Defences: []defence.Name{defence.BusReplies}, Run: func(t *testing.T) Verdict {
		b, cid := newBus(t), contract.NewCID()
		got := make(chan string, 1)
		sub, err := b.Conn().Subscribe(contract.SubjectAction(cid), func(m *nats.Msg) { got <- m.Reply })
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		if err := b.Conn().Flush(); err != nil {
			t.Fatal(err)
		}
		nc, err := dialBus(b, mint(t, b, cid, "mallory"))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.PublishRequest(contract.SubjectAction(cid), "_INBOX.victim.x", []byte("x"))
		_ = nc.FlushTimeout(5 * time.Second)
		select {
		case reply := <-got:
			return Verdict{reply == "_INBOX.victim.x", "a service was asked to answer to " + reply}
		case <-time.After(300 * time.Millisecond):
			return Verdict{false, fmt.Sprint("nothing came; ", nc.LastError())}
		}
	}},
	{Number: 33, Attack: "a client listens to another computer", Defences: []defence.Name{defence.BusPermissions}, Run: func(t *testing.T) Verdict {
		b, other := newBus(t), contract.NewCID()
		nc, err := dialBus(b, mint(t, b, contract.NewCID(), "mallory"))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		heard := make(chan string, 1)
		if _, err := nc.Subscribe(">", func(m *nats.Msg) { heard <- m.Subject }); err != nil {
			return Verdict{false, err.Error()}
		}
		_ = nc.FlushTimeout(5 * time.Second)
		if err := b.Conn().Publish("live."+string(other)+".log", []byte("secret")); err != nil {
			t.Fatal(err)
		}
		select {
		case subject := <-heard:
			return Verdict{true, "heard " + subject}
		case <-time.After(300 * time.Millisecond):
			return Verdict{false, fmt.Sprint("nothing was heard; ", nc.LastError())}
		}
	}},
	{Number: 33, Attack: "a client's message is over the limit", Defences: []defence.Name{defence.BusSizes, defence.BusPayload}, Run: func(t *testing.T) Verdict {
		b, cid := newBus(t), contract.NewCID()
		got := make(chan int, 1)
		sub, err := b.Conn().Subscribe(contract.SubjectAction(cid), func(m *nats.Msg) { got <- len(m.Data) })
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
		if err := b.Conn().Flush(); err != nil {
			t.Fatal(err)
		}
		nc, err := dialBus(b, mint(t, b, cid, "mallory"))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.Publish(contract.SubjectAction(cid), make([]byte, 400<<10))
		_ = nc.FlushTimeout(5 * time.Second)
		select {
		case n := <-got:
			return Verdict{true, fmt.Sprintf("%d bytes came", n)}
		case <-time.After(300 * time.Millisecond):
			return Verdict{false, fmt.Sprint("nothing came; ", nc.LastError())}
		}
	}},
	{Number: 39, Attack: "secrets in a file that everybody may read are used all the same", Defences: []defence.Name{defence.VaultPrivate}, Run: func(t *testing.T) Verdict {
		dir := t.TempDir()
		v, err := vault.Open(dir, newfile.Synced)
		if err == nil {
			err = v.Set(t.Context(), "name", "value")
		}
		if err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(dir)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			if err := os.Chmod(filepath.Join(dir, f.Name()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if v, err = vault.Open(dir, newfile.Synced); err == nil {
			_, err = v.Get(t.Context(), "name")
		}
		return Verdict{err == nil, fmt.Sprint(err)}
	}},
}

type tarEntry struct {
	tar.Header
	body string
}

func entry(name, body string) tarEntry {
	return tarEntry{tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(body)), Mode: 0o644}, body}
}

func link(kind byte, name, target string) tarEntry {
	return tarEntry{tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o644}, ""}
}

// tree returns a keeper on a tree of its own, beside which there is a secret.
func tree(t *testing.T) (e *engine.Engine, dir string) {
	t.Helper()
	dir = t.TempDir()
	opts := engine.Options{Root: filepath.Join(dir, "live"), Snapshots: filepath.Join(dir, "snapshots"), Uppers: filepath.Join(dir, "uppers")}
	opts.Limits.NewBytes, opts.Limits.Files = 8<<10, 40
	for _, d := range []string{opts.Root, opts.Snapshots, opts.Uppers} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	e, err := engine.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, dir
}

func archive(t *testing.T, entries []tarEntry) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// imported unpacks an archive. The attack works if a file called escaped is anywhere outside of it.
func imported(entries ...tarEntry) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		e, dir := tree(t)
		_, err := e.Import(t.Context(), wire.ImportRequest{Path: "workspace/new"}, archive(t, entries))
		found := ""
		werr := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if filepath.Base(path) == "escaped" && !strings.Contains(path, "/new/") {
				found = strings.TrimPrefix(path, dir)
			}
			return err
		})
		if werr != nil {
			t.Fatal(werr)
		}
		return Verdict{found != "", fmt.Sprintf("found %q, %v", found, err)}
	}
}

// importedFile unpacks an archive beside a secret. The attack works if the file of this name is
// there with this content.
func importedFile(t *testing.T, name, content string, entries ...tarEntry) Verdict {
	t.Helper()
	e, dir := tree(t)
	for _, at := range []string{"secret", "live/secret", "live/.git/secret", "live/.git/choir/secret"} {
		if err := os.WriteFile(filepath.Join(dir, at), []byte("the secret"), 0o644); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	_, err := e.Import(t.Context(), wire.ImportRequest{Path: "workspace/new"}, archive(t, entries))
	b, rerr := os.ReadFile(filepath.Join(dir, "live/workspace/new", name))
	return Verdict{rerr == nil && strings.Contains(string(b), content), fmt.Sprintf("%v, %.40q", err, b)}
}

// stored puts n pieces of the given size into a store with room for two of 2 KiB.
func stored(n, size int) func(*testing.T) Verdict {
	return func(t *testing.T) Verdict {
		d, err := disk.Open(t.TempDir(), blob.Quota{PerComputer: 4 << 10, PerBlob: 2 << 10})
		if err != nil {
			t.Fatal(err)
		}
		cid := contract.NewCID()
		for i := range n {
			if _, _, err := d.Put(t.Context(), cid, strings.NewReader(strings.Repeat(string(rune('a'+i)), size))); err != nil {
				return Verdict{false, fmt.Sprintf("after %d: %v", i, err)}
			}
		}
		return Verdict{true, fmt.Sprintf("%d bytes are stored", n*size)}
	}
}

// account is an account that has signed in, with a clock that the test sets.
type account struct {
	ids          *identity.Store
	now          time.Time
	link, secret string
	cid          contract.CID
}

func newAccount(t *testing.T) *account {
	t.Helper()
	a := &account{now: time.Now(), cid: contract.NewCID()}
	var err error
	a.ids, err = identity.Open(t.Context(), filepath.Join(t.TempDir(), "control.sqlite"), identity.WithClock(func() time.Time { return a.now }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.ids.Close(); err != nil {
			t.Error(err)
		}
	})
	owner, err := a.ids.Owner(t.Context())
	if err == nil {
		_, err = a.ids.Adopt(t.Context(), a.cid, owner.ID, "Studio")
	}
	if err == nil {
		a.link, _, err = a.ids.NewLink(t.Context(), owner.ID)
	}
	if err == nil {
		_, a.secret, err = a.ids.Claim(t.Context(), a.link)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newBus(t *testing.T) *bus.Bus {
	t.Helper()
	dir := t.TempDir()
	b, err := bus.Open(t.Context(), bus.Options{Dir: filepath.Join(dir, "nats"), KeysDir: filepath.Join(dir, "keys"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func mint(t *testing.T, b *bus.Bus, cid contract.CID, principal string) bus.Credentials {
	t.Helper()
	c, err := b.Mint(cid, principal, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// busBridge connects to the bus as a desktop does.
type busBridge struct{ b *bus.Bus }

func (d busBridge) Dial(_, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	go func() { _ = d.b.Serve(context.Background(), far) }() // this ends with the connection
	return near, nil
}

func dialBus(b *bus.Bus, c bus.Credentials) (*nats.Conn, error) {
	key, err := nkeys.FromSeed([]byte(c.Seed))
	if err != nil {
		return nil, err
	}
	return nats.Connect("nats://127.0.0.1", nats.SetCustomDialer(busBridge{b}),
		nats.UserJWT(func() (string, error) { return c.JWT, nil }, key.Sign),
		nats.CustomInboxPrefix(c.Inbox), nats.NoReconnect(), nats.Timeout(10*time.Second), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
}
