package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/fault/httpstatus"
	"choir.dev/choiros/internal/workspace/keeper/engine"
	"choir.dev/choiros/internal/workspace/keeper/scan"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// verbs are the methods of an engine that can be called.
type verbs struct {
	*http.ServeMux
	engine *engine.Engine
	clock  clock
}

// clock tells the times of answers, in words that no other one understands.
type clock struct {
	name  string
	began time.Time
}

func (c clock) now() string { return c.name + "-" + strconv.FormatInt(int64(time.Since(c.began)), 10) }

// then is the time that now told; before everything where it did not tell it.
func (c clock) then(told string) time.Time {
	name, at, _ := strings.Cut(told, "-")
	since, err := strconv.ParseInt(at, 10, 64)
	if err != nil || name != c.name {
		return time.Time{}
	}
	return c.began.Add(time.Duration(since))
}

// Handler serves an engine under /keeper/: POST /keeper/{verb} takes and gives
// JSON; POST /keeper/stream/{verb}?q={JSON} takes or gives raw bytes.
func Handler(e *engine.Engine) http.Handler {
	mux := verbs{http.NewServeMux(), e, clock{rand.Text(), time.Now()}}
	callStill(mux, "checkpoint", e.Checkpoint)
	call(mux, "list", e.List)
	callStill(mux, "diff", e.Diff)
	callStill(mux, "restore", e.Restore)
	callStill(mux, "prepare", e.Prepare)
	call(mux, "tree", e.Tree)
	call(mux, "hunks", e.Hunks)
	call(mux, "choose", e.Choose)
	call(mux, "kept", e.Kept)
	callStill(mux, "ignored", func(ctx context.Context, _ wire.Empty) (wire.IgnoredReply, error) { return e.Ignored(ctx) })
	call(mux, "filled", e.Filled)
	call(mux, "status", func(ctx context.Context, _ wire.Empty) (wire.StatusReply, error) { return e.Status(ctx) })
	call(mux, "begin", func(ctx context.Context, r wire.IDRequest) (wire.Empty, error) {
		return wire.Empty{}, e.Begin(ctx, r.ID)
	})
	callStill(mux, "apply", func(ctx context.Context, r wire.IDRequest) (wire.ApplyReply, error) { return e.Apply(ctx, r.ID) })
	call(mux, "abandon", func(ctx context.Context, r wire.IDRequest) (wire.Empty, error) {
		return wire.Empty{}, e.Abandon(ctx, r.ID)
	})
	call(mux, "unlogged", func(ctx context.Context, _ wire.Empty) ([]wire.Applied, error) { return e.Unlogged(ctx) })
	call(mux, "logged", func(ctx context.Context, r wire.IDRequest) (wire.Empty, error) {
		return wire.Empty{}, e.Logged(ctx, r.ID)
	})
	callStill(mux, "invert", e.Invert)
	call(mux, "drop", func(ctx context.Context, r wire.IDRequest) (wire.Empty, error) {
		return wire.Empty{}, e.Drop(ctx, r.ID)
	})
	call(mux, "mark", func(ctx context.Context, r wire.CommitRequest) (wire.Empty, error) {
		return wire.Empty{}, e.MarkLogged(ctx, r.Commit)
	})
	call(mux, "unmarked", func(ctx context.Context, _ wire.Empty) ([]wire.Commit, error) { return e.Unmarked(ctx) })
	call(mux, "snapshot", func(ctx context.Context, r wire.CommitRequest) (wire.SnapshotReply, error) {
		return e.Snapshot(ctx, r.Commit)
	})
	call(mux, "object", e.Object)
	call(mux, "contains", e.Contains)
	call(mux, "release", func(ctx context.Context, r wire.KeepRequest) (wire.Empty, error) {
		return wire.Empty{}, e.ReleaseSnapshots(ctx, r.Layers)
	})
	call(mux, "maintain", func(ctx context.Context, _ wire.Empty) (wire.Empty, error) { return wire.Empty{}, e.Maintain(ctx) })
	call(mux, "collect", func(ctx context.Context, _ wire.Empty) (wire.CollectReply, error) { return e.Collect(ctx) })
	serveFiles(mux, e)
	serveCare(mux, e)
	serveStreams(mux, e)
	return mux
}

// serveFiles serves the methods about the live tree's files.
func serveFiles(mux verbs, e *engine.Engine) {
	call(mux, "files", func(ctx context.Context, r wire.FilesRequest) (wire.FilesReply, error) {
		files, more, err := e.Files(ctx, r)
		return wire.FilesReply{Files: files, More: more}, err
	})
	call(mux, "stat", func(ctx context.Context, r wire.StatRequest) (wire.FileInfo, error) {
		if r.Quick {
			return e.QuickStat(ctx, string(r.Path))
		}
		return e.Stat(ctx, string(r.Path))
	})
	call(mux, "mkdir", func(ctx context.Context, r wire.PathRequest) (wire.Empty, error) {
		return wire.Empty{}, e.Mkdir(ctx, string(r.Path))
	})
	call(mux, "sync", func(ctx context.Context, r wire.PathRequest) (wire.Empty, error) {
		return wire.Empty{}, e.Sync(ctx, string(r.Path))
	})
	call(mux, "move", e.Move)
	call(mux, "remove", e.Remove)
	call(mux, "unlogged-operations", func(ctx context.Context, _ wire.Empty) ([]wire.Operation, error) { return e.UnloggedOperations(ctx) })
	call(mux, "operations-logged", func(ctx context.Context, r wire.IDsRequest) (wire.Empty, error) {
		return wire.Empty{}, e.OperationsLogged(ctx, r.IDs)
	})
	call(mux, "untrash", e.Untrash)
	call(mux, "trash", e.Trash)
	call(mux, "undo", e.Undo)
}

// serveCare serves the methods that keep the tree and its history whole.
func serveCare(mux verbs, e *engine.Engine) {
	call(mux, "scrub", e.Scrub)
	call(mux, "find", e.Find)
	call(mux, "repair", e.Repair)
	call(mux, "settle-upper", e.SettleUpper)
	callStill(mux, "settle", func(ctx context.Context, _ wire.Empty) (wire.Empty, error) { return wire.Empty{}, e.Settle(ctx) })
	callStill(mux, "shutdown", func(ctx context.Context, _ wire.Empty) (wire.Empty, error) { return wire.Empty{}, e.Shutdown(ctx) })
	call(mux, "heal", func(ctx context.Context, _ wire.Empty) (wire.HealReply, error) { return e.Heal(ctx) })
}

// serveStreams serves the methods that take or give raw bytes.
func serveStreams(mux verbs, e *engine.Engine) {
	upload(mux, "write", func(ctx context.Context, r wire.WriteRequest, body io.Reader) (wire.Written, error) {
		return e.Write(ctx, r, body)
	})
	upload(mux, "import", func(ctx context.Context, r wire.ImportRequest, body io.Reader) (wire.Operation, error) {
		return e.Import(ctx, r, body)
	})
	upload(mux, "receive", e.Pushes().Receive)
	mux.HandleFunc("POST /keeper/stream/found", func(w http.ResponseWriter, r *http.Request) {
		var at wire.Found
		err := decode([]byte(r.URL.Query().Get("q")), &at)
		if err == nil {
			err = serveFound(r.Context(), w, e, at)
		}
		if err != nil {
			fail(w, err)
		}
	})
	mux.HandleFunc("POST /keeper/stream/read", func(w http.ResponseWriter, r *http.Request) {
		var req wire.ReadRequest
		err := decode([]byte(r.URL.Query().Get("q")), &req)
		if err == nil {
			err = serveRead(r.Context(), w, e, req)
		}
		if err != nil {
			fail(w, err)
		}
	})
}

// decode decodes exactly one JSON value without unknown fields.
func decode(raw []byte, v any) error {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	if err := decodeStrict(raw, v); err != nil {
		return fault.New("keeper", fault.Invalid, "", fmt.Errorf("request: %w", err))
	}
	return nil
}

// callStill serves a verb that need not scan all of the tree when only the keeper could
// write to it. Verbs that show the live tree's current state (status) always scan it.
func callStill[In, Out any](mux verbs, verb string, f func(context.Context, In) (Out, error)) {
	call(mux, verb, func(ctx context.Context, in In) (Out, error) {
		asked, _ := ctx.Value(stillAsked{}).(stillAsked)
		if n, told := ctx.Value(watchesAsked{}).(int); told {
			ctx = scan.WithWatches(ctx, n)
		}
		return f(scan.WithStillSince(ctx, asked.name, asked.at), in)
	})
}

// stillAsked is what a request says about who could write, and the context key for it.
type stillAsked struct {
	name string
	at   time.Time // after which it was known
}

// watchesAsked is the context key for how many watches a request allows.
type watchesAsked struct{}

func call[In, Out any](mux verbs, verb string, f func(context.Context, In) (Out, error)) {
	mux.HandleFunc("POST /keeper/"+verb, func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxRequest))
		if err != nil {
			fail(w, fault.New("keeper", fault.Invalid, "", err))
			return
		}
		var in In
		if err := decode(raw, &in); err != nil {
			fail(w, err)
			return
		}
		ctx := context.WithValue(r.Context(), stillAsked{}, stillAsked{r.Header.Get(wire.StillHeader), mux.clock.then(r.Header.Get(wire.AnsweredHeader))})
		if n, err := strconv.Atoi(r.Header.Get(wire.WatchesHeader)); err == nil && n >= 0 {
			ctx = context.WithValue(ctx, watchesAsked{}, n)
		}
		out, err := f(ctx, in)
		w.Header().Set(wire.WatchesHeader, strconv.Itoa(mux.engine.Watches()))
		w.Header().Set(wire.AnsweredHeader, mux.clock.now())
		answer(w, out, err)
	})
}

func upload[In, Out any](mux verbs, verb string, f func(context.Context, In, io.Reader) (Out, error)) {
	mux.HandleFunc("POST /keeper/stream/"+verb, func(w http.ResponseWriter, r *http.Request) {
		var in In
		if err := decode([]byte(r.URL.Query().Get("q")), &in); err != nil {
			fail(w, err)
			return
		}
		out, err := f(r.Context(), in, r.Body)
		answer(w, out, err)
	})
}

func answer(w http.ResponseWriter, out any, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	raw, err := json.Marshal(out)
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(raw) // the other side is gone, and will ask again
}

func fail(w http.ResponseWriter, err error) {
	code := fault.CodeOf(err)
	raw, merr := json.Marshal(wire.Error{Code: code, Message: fault.Answer(err), Hint: fault.HintOf(err)})
	if merr != nil {
		raw = []byte(`{"code":"internal","message":"the error can't be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(httpstatus.Of(code))
	_, _ = w.Write(raw) // the same
}

// readBuffer is how much of a file is read at once: each piece is a frame of the tether,
// which costs its reader a wake-up.
const readBuffer = 128 << 10

// serveRead streams a file. The size of the whole is in X-Choir-Size.
func serveRead(ctx context.Context, w http.ResponseWriter, e *engine.Engine, req wire.ReadRequest) error {
	if req.Offset < 0 || req.Limit < 0 {
		return fault.New("keeper.Read", fault.Invalid, "", errors.New("offset and limit can't be negative"))
	}
	if req.Commit != "" {
		en, size, err := e.Show(ctx, req.Commit, string(req.Path), 0, io.Discard)
		if err != nil {
			return err
		}
		readHeaders(w, size, en.Mode)
		limit := req.Limit
		if limit == 0 {
			limit = -1
		}
		return ignoreAfterStart(e.Content(ctx, en, req.Offset, limit, w))
	}
	if req.Named {
		o, err := e.Open(ctx, string(req.Path))
		if err != nil {
			return err
		}
		defer o.Close()
		w.Header().Set(wire.IDHeader, o.ID)
		w.Header().Set(wire.StateHeader, o.State)
		return ignoreAfterStart(copyPart(w, o, o.FileInfo, req, o.Whole))
	}
	f, fi, err := e.Read(ctx, string(req.Path))
	if err != nil {
		return err
	}
	defer f.Close()
	return ignoreAfterStart(copyPart(w, f, fi, req, func() error { return nil }))
}

// copyPart writes the requested part of a live file. whole is called before the last piece
// is sent, so that content that is not one state of the file ends short.
func copyPart(w http.ResponseWriter, from io.ReaderAt, fi wire.FileInfo, req wire.ReadRequest, whole func() error) error {
	mode := wire.ModeFile
	if fi.Exec {
		mode = wire.ModeExec
	}
	w.Header().Set("X-Choir-Time", strconv.FormatInt(fi.Time, 10))
	readHeaders(w, fi.Size, mode)
	n := max(0, fi.Size-req.Offset)
	if req.Limit > 0 {
		n = min(n, req.Limit)
	}
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	buf := make([]byte, min(n, readBuffer))
	for at, end := req.Offset, req.Offset+n; at < end; {
		part := buf[:min(int64(len(buf)), end-at)]
		if read, err := from.ReadAt(part, at); read < len(part) {
			return cmp.Or(err, io.ErrUnexpectedEOF)
		}
		if at += int64(len(part)); at == end {
			if err := whole(); err != nil {
				return err
			}
		}
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// serveFound streams what a search found.
func serveFound(ctx context.Context, w http.ResponseWriter, e *engine.Engine, at wire.Found) error {
	give, err := e.Found(ctx, at)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	return ignoreAfterStart(give(w))
}

// ignoreAfterStart breaks the connection off when an error comes in the middle of a stream,
// which is all that HTTP can express by then.
func ignoreAfterStart(err error) error {
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

func readHeaders(w http.ResponseWriter, size int64, mode wire.Mode) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Choir-Size", strconv.FormatInt(size, 10))
	w.Header().Set("X-Choir-Mode", string(mode))
}

// decodeStrict decodes exactly one value without unknown fields.
func decodeStrict(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("bytes follow the request")
	}
	return nil
}
