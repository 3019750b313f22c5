package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"choir.dev/choiros/bench/report"
	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// text8 is 8 kB of lines that differ by i.
func text8(i int) string {
	return strings.Repeat("a line of a document that someone writes\n", 200) + fmt.Sprintln("line", i)
}

// files puts, stats and reads files through the API.
func files(ctx context.Context, e *env) (_ []report.Result, err error) {
	w, err := e.openWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	put := func(ctx context.Context, i int) error {
		_, err := w.api.Put(ctx, view.Put{Path: "workspace/put.txt"}, strings.NewReader(text8(i)))
		return err
	}
	if err := put(ctx, -1); err != nil {
		return nil, err
	}
	if err := e.quiet(ctx, w.PID); err != nil {
		return nil, err
	}
	out, err := w.all(ctx,
		act{ID: "put", What: "file put of 8 kB", Tries: 150, Least: 20, Target: report.AtMost(report.OfOurs, 2.5, "ms"), Do: put,
			RawWhat: "a file written, synced, renamed and its folder synced, on this disk", Raw: func(_ context.Context, i int) error { return putRaw(e.dir, text8(i)) }},
		act{ID: "stat", What: "stat of a file", Tries: 400, Least: 50, Target: report.AtMost(report.OfOurs, 0.35, "ms"), Do: func(ctx context.Context, _ int) error {
			list, err := w.api.Files(ctx, "workspace/put.txt")
			if err == nil && len(list) != 1 {
				err = fmt.Errorf("%d entries for one file", len(list))
			}
			return err
		}})
	if err != nil {
		return out, err
	}
	cat, err := w.cat(ctx, int64(e.size(1<<30, 1<<20)))
	return append(out, cat...), err
}

// putRaw writes a file atomically and durably, as a put does.
func putRaw(dir, text string) (err error) {
	f, err := os.CreateTemp(dir, "put")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, "put.txt")); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// cat reads a large file through the API, alternating with the same file over the same
// kinds of pipe without the product.
func (w *world) cat(ctx context.Context, size int64) (_ []report.Result, err error) {
	path := filepath.Join(w.env.dir, "large")
	if err := writeLarge(path, size); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	_, err = w.api.Put(ctx, view.Put{Path: "workspace/large.bin"}, io.NopCloser(f))
	if err = errors.Join(err, f.Close(), w.env.quiet(ctx, w.PID)); err != nil {
		return nil, err
	}
	bare, err := openBare(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.Close()) }()
	whole := func(body io.ReadCloser, err error) error {
		if err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, body)
		if err = errors.Join(err, body.Close()); err == nil && n != size {
			err = fmt.Errorf("%d bytes of %d", n, size)
		}
		return err
	}
	r, ours, err := w.measure(ctx, act{ID: "cat", What: fmt.Sprintf("files cat of %d MiB", size>>20), Tries: 5, Least: 3, Target: report.AtLeast(report.OfRatio, 0.8, "×"),
		RawWhat: "the same bytes from a file through HTTP over bare yamux on a unix socket, passed on by net/http on loopback",
		Do: func(ctx context.Context, _ int) error {
			body, _, err := w.api.Get(ctx, "workspace/large.bin")
			return whole(body, err)
		},
		Raw: func(ctx context.Context, _ int) error { return whole(bare.get(ctx)) }})
	if err != nil {
		return nil, err
	}
	if r.Ratio > 0 {
		r.Ratio = 1 / r.Ratio
	}
	r.P99 = nil
	rate := func(took float64) *report.Quantity {
		return &report.Quantity{Value: float64(size) / 1e6 / took, Unit: "MB/s"}
	}
	r.Ours, r.Raw = rate(ours.p50().Seconds()), rate(r.Raw.Value/1e3)
	return []report.Result{r}, nil
}

func writeLarge(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for at := int64(0); at < size && err == nil; at += int64(len(block)) {
		for i := range block { // no two blocks are alike
			block[i] = byte(int64(i)*7 + at>>20*13 + int64(i)>>8)
		}
		_, err = f.Write(block)
	}
	return errors.Join(err, f.Close())
}

// bare serves bytes to a client using only the libraries: a server on loopback passes on
// what another one answers over yamux, where a box's guest would be (inner).
type bare struct {
	inner, outer *http.Server
	mux          []*yamux.Session
	url          string
	client       *http.Client
	ended        chan error
}

func openBare(path string) (*bare, error) {
	b := &bare{client: &http.Client{Transport: &http.Transport{}}, ended: make(chan error, 2)}
	near, far, err := socketPair()
	if err != nil {
		return nil, err
	}
	config := yamux.DefaultConfig()
	config.EnableKeepAlive, config.LogOutput, config.MaxStreamWindowSize = false, io.Discard, 1<<20
	guest, err1 := yamux.Server(far, config)
	host, err2 := yamux.Client(near, config)
	ln, err3 := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, errors.Join(err, near.Close(), far.Close())
	}
	b.mux = []*yamux.Session{host, guest}
	b.url = "http://" + ln.Addr().String()
	b.inner = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f, err := os.Open(path); err == nil {
			_, _ = io.Copy(w, f) // the reader counts the bytes
			_ = f.Close()
		}
	})}
	through := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return host.Open() }}
	b.outer = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var res *http.Response
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://guest/", nil)
		if err == nil {
			res, err = through.RoundTrip(req)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_, _ = io.Copy(w, res.Body) // the reader counts the bytes
		_ = res.Body.Close()
	})}
	go func() { b.ended <- b.inner.Serve(guest) }()
	go func() { b.ended <- b.outer.Serve(ln) }()
	return b, nil
}

func (b *bare) get(ctx context.Context) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url, nil)
	if err != nil {
		return nil, err
	}
	res, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, errors.Join(errors.New(res.Status), res.Body.Close())
	}
	return res.Body, nil
}

func (b *bare) Close() error {
	b.client.CloseIdleConnections()
	err := b.outer.Close()
	for _, s := range b.mux {
		err = errors.Join(err, s.Close())
	}
	if b.inner != nil {
		_ = b.inner.Close() // its listener is the session that has just been closed
		<-b.ended
	}
	<-b.ended
	return err
}

// documents writes revisions of a run's document through the API, each from the one before,
// and lists 60 with their text.
func documents(ctx context.Context, e *env) (_ []report.Result, err error) {
	w, err := e.openWorld(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	doc, err := w.aDocument(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.quiet(ctx, w.PID); err != nil {
		return nil, err
	}
	newest := doc.Revision
	write, _, err := w.measure(ctx, act{ID: "document-write", What: "document: write a revision of 8 kB", Tries: 70, Least: 65, Target: report.AtMost(report.OfOurs, 3, "ms"),
		Note:    "It is in the log and in the document's file when it is acknowledged.",
		RawWhat: "one write and fsync on this disk", Raw: func(context.Context, int) error { return w.sync.sync() },
		Do: func(ctx context.Context, i int) error {
			made, err := w.api.Revise(ctx, doc.ID, view.Revise{Base: newest, Text: "# Notes\n\n" + text8(i)})
			if err == nil && made.Revision != newest+1 {
				err = fmt.Errorf("what was written on revision %d is revision %d", newest, made.Revision)
			}
			newest = made.Revision
			return err
		}})
	if err != nil {
		return nil, err
	}
	count := e.size(60, 1)
	same, err := w.rawRevisions(ctx, doc.ID, count)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, same.Close()) }()
	list, _, err := w.measure(ctx, act{ID: "document-list", What: fmt.Sprintf("document: %d revisions with their text", count), Tries: 60, Least: 10, Target: report.AtMost(report.OfOurs, 2, "ms"),
		Note:    "One request; the time has what the client takes to read the answer.",
		RawWhat: "the same bytes from net/http alone, on loopback, read in the same way",
		Raw: func(ctx context.Context, _ int) error {
			body, err := same.get(ctx)
			if err != nil {
				return err
			}
			var got []view.Document
			return errors.Join(rpc.Decode(body, &got), body.Close())
		},
		Do: func(ctx context.Context, _ int) error {
			got, _, err := w.api.Revisions(ctx, doc.ID, 0, count)
			if err == nil && (len(got) != count || got[0].Revision != newest || got[0].Body == "" || got[count-1].Revision != newest-count+1) {
				err = fmt.Errorf("asked for %d revisions up to %d, got %d", count, newest, len(got))
			}
			return err
		}})
	return []report.Result{write, list}, err
}

// rawRevisions serves a document's revisions as bytes that are in memory.
func (w *world) rawRevisions(ctx context.Context, document string, count int) (*bare, error) {
	list, _, err := w.api.Revisions(ctx, document, 0, count)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &bare{client: &http.Client{Transport: &http.Transport{}}, url: "http://" + ln.Addr().String(), ended: make(chan error, 1)}
	b.outer = &http.Server{Handler: http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "application/json")
		_, _ = out.Write(raw) // the reader notices missing bytes
	})}
	go func() { b.ended <- b.outer.Serve(ln) }()
	return b, nil
}

// aDocument returns the document of a run, once it has its file.
func (w *world) aDocument(ctx context.Context) (view.Document, error) {
	acted, err := w.api.Prompt(ctx, view.Prompt{ID: contract.NewID(), Text: `write "milk" to workspace/list.txt`})
	if err != nil {
		return view.Document{}, err
	}
	run, err := w.api.Wait(ctx, acted.Run)
	if err != nil {
		return view.Document{}, err
	}
	doc, err := w.api.Document(ctx, run.Document, 0)
	if err != nil {
		return doc, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if list, err := w.api.Files(ctx, doc.Path); err == nil && len(list) == 1 {
			return doc, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return doc, ctx.Err()
		}
	}
}

// socketPair is a connected pair of unix sockets.
func socketPair() (near, far net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, bad := net.FileConn(f)
		conns[i] = c
		err = errors.Join(err, bad, f.Close())
	}
	return conns[0], conns[1], err
}
