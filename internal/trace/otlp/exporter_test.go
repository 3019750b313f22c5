package otlp_test

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/trace/otlp"
	"choir.dev/choiros/internal/view"
)

const cid = contract.CID("abcdefghijklmnop")

var one = view.Trace{ID: strings.Repeat("ab", 16), Spans: []view.Span{
	{ID: "0000000000000001", Name: "invoke_workflow run", Kind: view.SpanInternal, Start: time.Unix(1, 0), End: time.Unix(9, 0), Error: "failed"},
	{ID: "0000000000000002", Parent: "0000000000000001", Name: "chat m", Kind: view.SpanClient, Start: time.Unix(2, 5), End: time.Unix(3, 0), From: 11, To: 12,
		Attributes: map[string]any{"gen_ai.usage.input_tokens": int64(7), "choir.cost_usd": 0.5, "choir.unfinished": true, "gen_ai.operation.name": "chat"}},
}}

func exporter(t *testing.T, o otlp.Options) *otlp.Exporter {
	t.Helper()
	x, err := otlp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestACollectorTakesATrace shows what a collector reads on the wire.
func TestACollectorTakesATrace(t *testing.T) {
	var got *http.Request
	var body []byte
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	}))
	defer s.Close()
	x := exporter(t, otlp.Options{Endpoint: s.URL + "/", Version: "1.2", Lookup: func(_ context.Context, name string) (string, error) {
		if name != otlp.DefaultKey {
			t.Errorf("asked for %s", name)
		}
		return "api-key=a%20secret, X-Other = b", nil
	}})
	if err := x.Export(t.Context(), cid, one); err != nil {
		t.Fatal(err)
	}
	if got.Method != http.MethodPost || got.URL.Path != "/v1/traces" || got.Header.Get("Content-Type") != "application/x-protobuf" || got.Header.Get("Api-Key") != "a secret" || got.Header.Get("X-Other") != "b" {
		t.Errorf("%s %s with %v", got.Method, got.URL, got.Header)
	}
	var m tracepb.TracesData
	if err := proto.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, a := range m.ResourceSpans[0].Resource.Attributes {
		said[a.Key] = a.Value.GetStringValue()
	}
	if said["service.name"] != "choir" || said["service.version"] != "1.2" || said["choir.computer.id"] != string(cid) {
		t.Errorf("the resource is %v", said)
	}
	spans := m.ResourceSpans[0].ScopeSpans[0].Spans
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	run, chat := spans[0], spans[1]
	if hex.EncodeToString(run.TraceId) != one.ID || len(run.ParentSpanId) != 0 || run.Kind != tracepb.Span_SPAN_KIND_INTERNAL || run.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR || run.Attributes[0].Key != "error.type" || run.Attributes[0].Value.GetStringValue() != "failed" {
		t.Errorf("the run is %v", run)
	}
	if len(chat.Attributes) != 4 {
		t.Errorf("what only this computer's own log gives a meaning to is sent, too: %v", chat.Attributes)
	}
	if hex.EncodeToString(chat.ParentSpanId) != one.Spans[0].ID || chat.Kind != tracepb.Span_SPAN_KIND_CLIENT || chat.Status != nil || chat.StartTimeUnixNano != 2_000_000_005 || chat.EndTimeUnixNano != 3_000_000_000 ||
		chat.Attributes[0].Value.GetDoubleValue() != 0.5 || !chat.Attributes[1].Value.GetBoolValue() || chat.Attributes[3].Value.GetIntValue() != 7 {
		t.Errorf("the call of a model is %v", chat)
	}
}

// TestACollectorIsNotTrusted shows what a collector that refuses, sends elsewhere, floods, hangs or is not there
// costs, and which of it is worth trying again.
func TestACollectorIsNotTrusted(t *testing.T) {
	elsewhere := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		code  fault.Code // "": it is taken
		after time.Duration
	}{
		"nonsense":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\xff{not this")) }, "", 0},
		"flood":     {flood, "", 0},
		"refuses":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(400) }, fault.Invalid, 0},
		"too large": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(413) }, fault.Invalid, 0},
		"unknown":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, fault.Unavailable, 0},
		"busy":      {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "7"); w.WriteHeader(429) }, fault.Unavailable, 7 * time.Second},
		"for ever": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "9999999999")
			w.WriteHeader(503)
		}, fault.Unavailable, 5 * time.Minute},
		"redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}, fault.Unavailable, 0},
		"hangs": {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }, fault.Unavailable, 0},
		"drips": {func(w http.ResponseWriter, r *http.Request) {
			for drip := time.NewTicker(10 * time.Millisecond); r.Context().Err() == nil; <-drip.C {
				_, _ = w.Write([]byte("x"))
				w.(http.Flusher).Flush()
			}
		}, "", 0},
		"broken headers": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) }, fault.Unavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c.serve)
			defer s.Close()
			defer s.CloseClientConnections()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			err := exporter(t, otlp.Options{Endpoint: s.URL, Patience: 500 * time.Millisecond}).Export(ctx, cid, one)
			if ctx.Err() != nil || (err == nil) != (c.code == "") || err != nil && fault.CodeOf(err) != c.code {
				t.Errorf("%v; want %q", err, c.code)
			}
			later := new(otlp.AfterError)
			if errors.As(err, &later); later.After != c.after {
				t.Errorf("to be tried again after %v, want %v", later.After, c.after)
			}
		})
	}
	err := exporter(t, otlp.Options{Endpoint: gone.URL}).Export(t.Context(), cid, one)
	if !fault.Is(err, fault.Unavailable) || fault.HintOf(err) == "" {
		t.Errorf("nobody there: %v", err)
	}
	if elsewhere > 0 {
		t.Error("what was meant for a collector went where it said")
	}
	for _, text := range []string{"no-value", "bad name=x", "x=a%0d%0aInjected: y", strings.Repeat("a=b,", 40)} {
		x := exporter(t, otlp.Options{Endpoint: other.URL, Lookup: func(context.Context, string) (string, error) { return text, nil }})
		if err := x.Export(t.Context(), cid, one); !fault.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "Injected") || elsewhere > 0 {
			t.Errorf("with the headers %q: %v", text, err)
		}
	}
}

// flood answers without end.
func flood(w http.ResponseWriter, r *http.Request) {
	chunk := make([]byte, 64<<10)
	for r.Context().Err() == nil {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}
