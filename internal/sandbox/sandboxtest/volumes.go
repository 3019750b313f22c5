package sandboxtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/sandbox"
)

// testVolumes: what a box makes is kept whole, under a name, for boxes to come;
// what is discarded is gone at once; and the host is shown nothing that it is not
// to read.
func testVolumes(t *testing.T, e *Env) {
	ctx, v := t.Context(), e.Computer.Volumes()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	made, kept := sandbox.Output("made"), sandbox.Cache("kept/one")
	must(v.Make(ctx, made))
	must(v.Put(ctx, made, "in/given", []byte("given"), 0o644))
	b, g := e.Box(t, sandbox.BoxSpec{ID: "maker", Mounts: []sandbox.Mount{{Source: made, Target: "/out", Mode: sandbox.ReadWrite}}})
	if r := Run(t, g, "sh", "-c", "cat /out/in/given && echo done > /out/made && ln -s /etc /out/link && mkdir /out/closed && chmod 0 /out/closed"); r.Code != 0 || r.Out != "given" {
		t.Fatalf("%+v", r)
	}
	must(b.Kill())
	if size, err := v.Size(ctx, made); err != nil || size.Files < 4 || size.Bytes == 0 {
		t.Errorf("it measures %+v, %v", size, err)
	}
	must(v.Keep(ctx, made, kept))
	if there, err := v.Exists(ctx, made); err != nil || there {
		t.Errorf("what was kept is still an output: %v, %v", there, err)
	}
	files, err := v.Files(ctx, kept)
	must(err)
	if text, err := fs.ReadFile(files, "made"); err != nil || string(text) != "done\n" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := fs.ReadFile(files, "link/passwd"); err == nil {
		t.Error("a link in a volume led out of it")
	}
	if _, err := v.Exists(ctx, kept.At("link")); !fault.Is(err, fault.Denied) {
		t.Errorf("a link is taken for a folder: %v", err)
	}
	if _, err := e.Computer.Box(ctx, sandbox.BoxSpec{ID: "linked", Kind: contract.BoxTask, Mounts: []sandbox.Mount{{Source: kept.At("link"), Target: "/linked", Mode: sandbox.ReadOnly}}}); err == nil {
		t.Error("a box was opened on a link")
	}
	// Another takes its place, also when the first can't be entered.
	must(v.Make(ctx, made))
	must(v.Put(ctx, made, "made", []byte("again"), 0o644))
	must(v.Keep(ctx, made, kept))
	if files, err = v.Files(ctx, kept); err != nil {
		t.Fatal(err)
	}
	if text, err := fs.ReadFile(files, "made"); err != nil || string(text) != "again" {
		t.Errorf("%q, %v", text, err)
	}
	testUnpacked(t, v)
	testListed(t, v, kept)
	testHistory(t, e)
	for name, volume := range map[string]sandbox.Volume{
		"all the overlays": sandbox.Written(""), "the live files": sandbox.Live(""), "no cache of it": sandbox.Cache("workspace/x"),
		"a path outside": kept.At("../.."), "an output below another": sandbox.Output("a/b"), "no name": sandbox.Output(""),
	} {
		if err := v.Discard(ctx, volume); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	for _, volume := range []sandbox.Volume{sandbox.Live(""), sandbox.Snapshot("x"), sandbox.Written("x")} {
		if _, err := v.Files(ctx, volume); !fault.Is(err, fault.Invalid) {
			t.Errorf("the host is shown %s: %v", volume, err)
		}
	}
}

// testUnpacked: a tree that comes from a box is written into an output, and nowhere else.
func testUnpacked(t *testing.T, v sandbox.Volumes) {
	t.Helper()
	ctx, out := t.Context(), sandbox.Output("unpacked")
	if err := v.Make(ctx, out); err != nil {
		t.Fatal(err)
	}
	archive := func(name string) io.Reader {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 4})
		if err == nil {
			_, err = w.Write([]byte("text"))
		}
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	if err := v.Unpack(ctx, out, archive("./file"), 100); err != nil {
		t.Fatal(err)
	}
	files, err := v.Files(ctx, out)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := fs.ReadFile(files, "file"); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	if err := v.Unpack(ctx, out, archive("../file"), 100); err == nil {
		t.Error("a file was written beside the volume")
	}
	if err := v.Unpack(ctx, out, archive("more"), 3); !fault.Is(err, fault.DiskFull) {
		t.Errorf("more than there is room for: %v", err)
	}
	for _, volume := range []sandbox.Volume{sandbox.Live(""), sandbox.Snapshot("x"), sandbox.Written("x"), sandbox.Cache("kept/one")} {
		if err := v.Unpack(ctx, volume, archive("file"), 100); !fault.Is(err, fault.Invalid) {
			t.Errorf("the host filled %s: %v", volume, err)
		}
	}
	if err := v.Discard(ctx, out); err != nil {
		t.Error(err)
	}
}

// testHistory: of the live files the host is shown their history, of which only what is
// a file, and without waiting; and nothing takes the place of a tree that is there.
func testHistory(t *testing.T, e *Env) {
	t.Helper()
	ctx, v := t.Context(), e.Computer.Volumes()
	if _, err := v.History(ctx); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a history it shows one: %v", err)
	}
	_, g := e.Box(t, sandbox.BoxSpec{ID: "historian", Mounts: []sandbox.Mount{{Source: sandbox.Live(""), Target: "/live", Mode: sandbox.ReadWrite}}})
	if r := Run(t, g, "sh", "-c", "mkdir -p /live/.git/refs && echo one > /live/.git/refs/main && ln -s /etc/passwd /live/.git/link && ln -s refs/main /live/.git/inside && mkfifo /live/.git/pipe && echo secret > /live/file"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	history, err := v.History(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := fs.ReadFile(history, "refs/main"); err != nil || string(text) != "one\n" {
		t.Errorf("%q, %v", text, err)
	}
	for _, name := range []string{"link", "inside", "pipe", "../file", "refs/../../file"} {
		if text, err := fs.ReadFile(history, name); err == nil {
			t.Errorf("the history shows %s: %q", name, text)
		}
	}
	if r := Run(t, g, "sh", "-c", "rm -r /live/.git && mkdir /live/other && echo other > /live/other/f && ln -s other /live/.git"); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	if _, err := v.History(ctx); !fault.Is(err, fault.Denied) {
		t.Errorf("a link is taken for the history: %v", err)
	}
	tree := sandbox.Output("tree")
	if err := errors.Join(v.Make(ctx, tree), v.Put(ctx, tree, "f", []byte("x"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := v.Keep(ctx, tree, sandbox.Live("")); !fault.Is(err, fault.Conflict) {
		t.Errorf("the live tree was replaced: %v", err)
	}
	if err := v.Keep(ctx, tree, sandbox.Live("sub")); !fault.Is(err, fault.Invalid) {
		t.Errorf("a part of the live tree was replaced: %v", err)
	}
	if err := v.Discard(ctx, tree); err != nil {
		t.Error(err)
	}
}

// testListed: volumes are listed by name and by when they were used, and one that
// is discarded is not there any more.
func testListed(t *testing.T, v sandbox.Volumes, kept sandbox.Volume) {
	t.Helper()
	ctx, before := t.Context(), time.Now()
	for _, name := range []string{"a", "b"} {
		if err := v.Make(ctx, sandbox.Written(name).At("part/one")); err != nil {
			t.Fatal(err)
		}
		if err := v.Make(ctx, sandbox.Written(name)); err != nil {
			t.Fatal(err)
		}
	}
	names := func() []string {
		list, err := v.List(ctx, sandbox.Written(""))
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, l := range list {
			out = append(out, l.Name)
		}
		slices.Sort(out)
		return out
	}
	if got := names(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("overlays %v", got)
	}
	if err := v.Discard(ctx, sandbox.Written("a")); err != nil {
		t.Error(err)
	}
	if there, err := v.Exists(ctx, sandbox.Written("a").At("part/one")); err != nil || there {
		t.Errorf("a part of what was discarded is there: %v, %v", there, err)
	}
	if got := names(); !slices.Equal(got, []string{"b"}) {
		t.Errorf("overlays %v", got)
	}
	if err := errors.Join(v.Discard(ctx, sandbox.Written("a")), v.Touch(ctx, kept)); err != nil {
		t.Error(err)
	}
	list, err := v.List(ctx, sandbox.Cache("kept"))
	if err != nil || len(list) != 1 || list[0].Name != "one" || list[0].Used.Before(before.Add(-time.Second)) {
		t.Errorf("caches %+v, %v", list, err)
	}
}
