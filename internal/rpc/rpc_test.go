package rpc_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// desktop is a caller on the bus.
var desktop = rpc.Caller{Actor: contract.DesktopOf("u")}

func TestDeclarations(t *testing.T) {
	names, routes := map[string]bool{}, map[string]bool{}
	for _, m := range rpc.All() {
		d := m.About()
		route := d.HTTP.Verb + " " + d.HTTP.Path
		if names[d.Name] || d.HTTP.ID != "" && (routes[route] || routes[d.HTTP.ID]) {
			t.Errorf("%s is declared twice", d.Name)
		}
		names[d.Name], routes[route], routes[d.HTTP.ID] = true, true, true
		_, isList := m.Answers()
		overHTTP := d.Callers&rpc.API != 0
		for what, wrong := range map[string]bool{
			"nobody may call it":               d.Callers == 0,
			"it says nothing of itself":        d.Summary == "",
			"nobody was granted it":            contract.SetOf(d.May) == 0 || d.Also != "" && contract.SetOf(d.Also) == 0,
			"what it takes is not of it":       d.Needs != rpc.Plane && !grant.Owner.May().Has(d.May),
			"its door has no route":            overHTTP != (d.HTTP.ID != ""),
			"it reads, or it does not":         overHTTP && (d.HTTP.Verb == http.MethodGet) != (d.Effect == rpc.Reads),
			"its entries have no name":         isList != (d.Noun != ""),
			"a desktop can't hold its bytes":   d.Callers&rpc.Desktop != 0 && d.Kind != rpc.Call,
			"nothing bounds its time":          d.Kind == rpc.Call && d.Limit <= 0,
			"it is asked of nothing, and read": d.Needs == rpc.Known && !d.Host && d.Kind == rpc.Call,
		} {
			if wrong {
				t.Errorf("%s: %s", d.Name, what)
			}
		}
	}
	if len(names) < 40 {
		t.Errorf("only %d methods", len(names))
	}
}

// TestRequestsOnTheBus shows that a request on the bus has the same bounds as over HTTP.
func TestRequestsOnTheBus(t *testing.T) {
	var listed rpc.FilesRequest
	var put rpc.PutBackRequest
	table := rpc.Table{}
	rpc.Bind(table, rpc.FilesList, func(_ context.Context, _ rpc.Caller, in rpc.FilesRequest) (rpc.List[view.File], error) {
		listed = in
		return rpc.List[view.File]{More: true}, nil
	})
	rpc.Bind(table, rpc.TrashPutBack, func(_ context.Context, _ rpc.Caller, in rpc.PutBackRequest) (view.File, error) {
		put = in
		return view.File{ID: "a"}, nil
	})
	ask := func(m rpc.Any, body string) (string, error) {
		who := desktop
		if !m.About().AskedBy(who.Actor.Kind) {
			who.Actor = contract.Person("u")
		}
		b, err := m.Answer(t.Context(), table, who, []byte(body))
		return string(b), err
	}
	if got, err := ask(rpc.FilesList, ``); err != nil || got != `{"files":[],"more":true}` || listed.Limit != 1000 {
		t.Errorf("%s, %v, %+v", got, err, listed)
	}
	if _, err := ask(rpc.FilesList, `{"path":"a","after":"b","limit":9000}`); err != nil || listed.Limit != 2000 || listed.Path != "a" || listed.After != "b" {
		t.Errorf("%v, %+v", err, listed)
	}
	// A path and a body over HTTP become one object on the bus.
	if got, err := ask(rpc.TrashPutBack, `{"entry":"e1","to":"b"}`); err != nil || !strings.Contains(got, `"id":"a"`) || put.Entry != "e1" || put.Body.To != "b" {
		t.Errorf("%s, %v, %+v", got, err, put)
	}
	for body, field := range map[string]string{
		`{"path":"../a"}`: "path", `{"patth":"a"}`: "patth", `{"path":1}`: "path", `{"computer":"x"}`: "computer", `{"path":"` + strings.Repeat("a", 4097) + `"}`: "path", `{`: "request", `{} {}`: "request",
	} {
		if _, err := ask(rpc.FilesList, body); contract.AsFieldError(err) == nil || contract.AsFieldError(err).Field != field {
			t.Errorf("%.80s: %v", body, err)
		}
	}
	for body, field := range map[string]string{`{"entry":""}`: "entry", `{"entry":"a/b"}`: "entry", `{"entry":"a","to":"/b"}`: "to"} {
		if _, err := ask(rpc.TrashPutBack, body); contract.AsFieldError(err) == nil || contract.AsFieldError(err).Field != field {
			t.Errorf("%s: %v", body, err)
		}
	}
	if _, err := ask(rpc.RunList, `{}`); !fault.Is(err, fault.Missing) {
		t.Errorf("what nobody answers: %v", err)
	}
}

// An answer on the bus is cut to what its message may hold.
func TestAnswersOnTheBusFit(t *testing.T) {
	table := rpc.Table{}
	rpc.Bind(table, rpc.CheckpointList, func(context.Context, rpc.Caller, rpc.CheckpointsRequest) (rpc.List[view.Checkpoint], error) {
		list := make([]view.Checkpoint, 400)
		for i := range list {
			list[i] = view.Checkpoint{ID: "c1", Message: strings.Repeat("m", 4096), Skipped: make([]string, 100)}
		}
		return rpc.List[view.Checkpoint]{Items: list}, nil
	})
	rpc.Bind(table, rpc.DocumentGet, func(context.Context, rpc.Caller, rpc.DocumentRequest) (view.Document, error) {
		return view.Document{Body: strings.Repeat("x", rpc.MaxBusAnswer)}, nil
	})
	b, err := rpc.CheckpointList.Answer(t.Context(), table, desktop, nil)
	var got struct {
		Checkpoints []struct {
			Commit  string
			Skipped []string
		}
		More bool
	}
	if jerr := json.Unmarshal(b, &got); err != nil || jerr != nil || len(b) > rpc.MaxBusAnswer {
		t.Fatalf("%d bytes, %v, %v", len(b), err, jerr)
	}
	if n := len(got.Checkpoints); n < 100 || n >= 400 || !got.More || got.Checkpoints[0].Commit != "c1" || len(got.Checkpoints[0].Skipped) != 20 {
		t.Errorf("%d checkpoints, more %v", n, got.More)
	}
	if _, err := rpc.DocumentGet.Answer(t.Context(), table, desktop, []byte(`{"document":"`+contract.NewID()+`"}`)); !fault.Is(err, fault.Exhausted) {
		t.Errorf("what can't be cut: %v", err)
	}
}

// An empty list is encoded as a list, as the TypeScript types for the desktop say.
func TestNoListIsNull(t *testing.T) {
	table := rpc.Table{}
	rpc.Bind(table, rpc.LogRead, func(context.Context, rpc.Caller, rpc.LogRequest) (p view.EventPage, _ error) { return p, nil })
	rpc.Bind(table, rpc.StateSnapshot, func(context.Context, rpc.Caller, rpc.Of) (view.Snapshot, error) {
		return view.Snapshot{Theme: &contract.Theme{Colors: map[string]string{}}, Windows: []view.Window{{}}}, nil
	})
	rpc.Bind(table, rpc.CheckpointCreate, func(context.Context, rpc.Caller, rpc.CheckpointRequest) (k view.Checkpointed, _ error) { return k, nil })
	rpc.Bind(table, rpc.CheckpointDiff, func(context.Context, rpc.Caller, rpc.DiffRequest) (d view.Diff, _ error) { return d, nil })
	rpc.Bind(table, rpc.CheckpointUndo, func(context.Context, rpc.Caller, rpc.UndoRequest) (r view.Restored, _ error) { return r, nil })
	rpc.Bind(table, rpc.ProposalList, func(context.Context, rpc.Caller, rpc.ProposalsRequest) (l rpc.List[view.Proposal], _ error) {
		return l, nil
	})
	for m, body := range map[rpc.Any]string{
		rpc.LogRead: "", rpc.StateSnapshot: "", rpc.CheckpointCreate: "", rpc.CheckpointDiff: "", rpc.CheckpointUndo: "", rpc.ProposalList: `{"document":"` + contract.NewID() + `"}`,
	} {
		if b, err := m.Answer(t.Context(), table, desktop, []byte(body)); err != nil || strings.Contains(string(b), "null") {
			t.Errorf("%s: %s, %v", m.About().Name, b, err)
		}
	}
}

// The client's requests match the declared routes.
func TestRequestsOverHTTP(t *testing.T) {
	r, err := rpc.CheckpointDiff.Request("-", rpc.DiffRequest{DiffRequest: view.DiffRequest{From: "a b"}})
	if err != nil || r.Verb != "GET" || r.Path != "/api/computers/-/diff" || r.Query.Encode() != "from=a+b" || r.Body != nil {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = rpc.TrashPutBack.Request("c1", rpc.PutBackRequest{Entry: "a/b", Body: view.PutBackRequest{To: "x"}})
	if err != nil || r.Verb != "POST" || r.Path != "/api/computers/c1/trash/a%2Fb/put-back" || string(r.Body) != `{"to":"x"}` {
		t.Errorf("%+v, %s, %v", r, r.Body, err)
	}
	if _, err := rpc.StateSnapshot.Request("-", rpc.Of{}); err == nil {
		t.Error("what is only on the bus was put into HTTP")
	}
	for _, m := range rpc.All() {
		if d := m.About(); d.HTTP.ID != "" && m.Asks().NumField() < strings.Count(d.HTTP.Path, "{") {
			t.Errorf("%s does not name all of %s", d.Name, d.HTTP.Path)
		}
	}
	list, err := rpc.FilesList.Read(strings.NewReader(`[{"id":"a"}]`), true)
	if err != nil || len(list.Items) != 1 || !list.More {
		t.Errorf("%+v, %v", list, err)
	}
}
