package loops_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"image"
	"image/gif"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/loops"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/tool"
)

// says is a box that answers every call with the same.
type says struct {
	ports.Box
	url  *url.URL
	base http.RoundTripper
}

func (says) ID() string                     { return "b" }
func (s says) Transport() http.RoundTripper { return s }
func (s says) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = s.url.Scheme, s.url.Host
	return s.base.RoundTrip(r)
}

// TestABoxNamesNoPictures shows that what a box says it kept is refused: any blob of the computer could be named so.
func TestABoxNamesNoPictures(t *testing.T) {
	answer := ""
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
	defer srv.Close()
	at, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	box := says{url: at, base: srv.Client().Transport}
	answer = `{"ok":true,"output":"seen"}`
	if res, err := loops.CallTool(t.Context(), box, "read", nil, ""); err != nil || res.Output != "seen" {
		t.Fatalf("%+v %v", res, err)
	}
	answer = `{"ok":true,"output":"seen","images":[{"media":"image/png","ref":"` + string(contract.NewBlobRef([32]byte{1})) + `"}]}`
	if res, err := loops.CallTool(t.Context(), box, "read", nil, ""); err == nil {
		t.Errorf("%+v", res)
	}
}

type kept map[contract.BlobRef][]byte

func (k kept) Put(_ context.Context, _ contract.CID, r io.Reader) (contract.BlobRef, int64, error) {
	b, err := io.ReadAll(r)
	ref := contract.NewBlobRef(sha256.Sum256(b))
	k[ref] = b
	return ref, int64(len(b)), err
}

func (kept) Open(context.Context, contract.CID, contract.BlobRef) (io.ReadSeekCloser, int64, error) {
	return nil, 0, errors.New("not asked for")
}

// TestKeepPictures shows that of what a box gives only pictures are kept, and few.
func TestKeepPictures(t *testing.T) {
	var b bytes.Buffer
	if err := gif.Encode(&b, image.NewGray(image.Rect(0, 0, 2, 2)), nil); err != nil {
		t.Fatal(err)
	}
	webp := []byte("RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00")
	res := tool.Result{OK: true, Output: "seen", Pictures: [][]byte{[]byte("#!/bin/sh\n"), []byte("<svg onload=alert(1)>"), b.Bytes(), webp, b.Bytes(), nil}}
	large := tool.Result{OK: true, Pictures: [][]byte{append(b.Bytes(), make([]byte, 3_000_000)...)}}
	if err := loops.KeepPictures(t.Context(), kept{}, contract.NewCID(), &large); err != nil || len(large.Images) > 0 || !strings.Contains(large.Output, "at most 3000000") {
		t.Errorf("%v %+v", err, large)
	}
	store := kept{}
	if err := loops.KeepPictures(t.Context(), store, contract.NewCID(), &res); err != nil {
		t.Fatal(err)
	}
	if len(res.Pictures) > 0 || len(res.Images) != 2 || res.Images[0].Media != "image/gif" || res.Images[1].Media != "image/webp" || len(store) != 2 {
		t.Errorf("%+v of %d", res.Images, len(store))
	}
	if n := strings.Count(res.Output, "neither PNG"); n != 2 {
		t.Errorf("%q", res.Output)
	}
	if n := strings.Count(res.Output, "2 more are not shown; at most 4"); n != 1 {
		t.Errorf("%q", res.Output)
	}
}
