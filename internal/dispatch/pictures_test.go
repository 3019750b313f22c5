package dispatch_test

import (
	"bytes"
	"image"
	"image/png"
	"io"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
)

// drawn is a picture of so many pixels.
func drawn(t *testing.T, width, height int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestAPictureIsLookedAt shows that both loops look at pictures of the tree, which are blobs of the computer from then on,
// that recall shows one again, and that what is none or too large for services is told in words.
func TestAPictureIsLookedAt(t *testing.T) {
	h := newHouse(t)
	chart := drawn(t, 3, 2)
	put(h.ws.live(), "workspace/chart.png", chart)
	put(h.ws.live(), "workspace/wide.png", drawn(t, 8001, 1))
	put(h.ws.live(), "workspace/torn.png", chart[:20])
	put(h.ws.live(), "workspace/old.bmp", append([]byte("BM"), make([]byte, 60)...))
	plans := plan(m{"kind": "inspect", "goal": "look", "tools": []string{"read"}})
	looks := map[string]contract.ToolReturn{}
	see := func(req contract.TurnRequest) {
		for _, msg := range req.Messages {
			for _, p := range msg.Parts {
				if p.Return != nil {
					looks[p.Return.ID] = *p.Return
				}
			}
		}
	}
	h.model.director = func(n int, req contract.TurnRequest) []contract.Part {
		see(req)
		if n == 0 {
			return parts(use("director", "read", m{"path": "workspace/chart.png"}))
		}
		return plans(n-1, req)
	}
	work := steps(use("chart", "read", m{"path": "workspace/chart.png"}), use("wide", "read", m{"path": "workspace/wide.png"}),
		use("torn", "read", m{"path": "workspace/torn.png"}), use("old", "read", m{"path": "workspace/old.bmp"}), use("again", "recall", m{"call": "chart"}))
	h.model.associate = func(n int, req contract.TurnRequest) []contract.Part {
		see(req)
		return work(n, req)
	}
	if rep := h.report(h.submit("look")); rep.Status != contract.RunDone {
		t.Fatalf("%+v", rep)
	}
	h.quiet()
	for _, call := range []string{"director", "chart", "again"} {
		r := looks[call]
		if r.IsError || len(r.Images) != 1 || r.Images[0].Media != "image/png" || r.Images[0].Bytes != int64(len(chart)) {
			t.Fatalf("%s: %+v", call, r)
		}
		f, _, err := h.blobs.Open(t.Context(), h.cid, r.Images[0].Ref)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(f); err != nil || !bytes.Equal(b, chart) {
			t.Errorf("%s: another picture: %v", call, err)
		}
		f.Close()
	}
	for call, want := range map[string]string{"wide": "8001 × 1 pixels", "torn": "it can't be read", "old": "old.bmp is binary"} {
		if r := looks[call]; len(r.Images) > 0 || !strings.Contains(r.Content, want) {
			t.Errorf("%s: %+v", call, r)
		}
	}
	logged := 0
	for _, p := range h.events("tool.returned") {
		logged += len(p.(*contract.ToolReturned).Images)
	}
	if logged != 2 { // chart and again; the Director's looks are in its turns
		t.Errorf("the log has %d pictures", logged)
	}
}
