package contract_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/contract/schema"
)

// message is one kind of message: how it is decoded, and its schema.
type message struct {
	schema string
	typ    reflect.Type
	decode func([]byte) (any, error)
}

func strict[T any](decode func([]byte) (T, error)) func([]byte) (any, error) {
	return func(b []byte) (any, error) {
		v, err := decode(b)
		return &v, err
	}
}

func direct[T interface{ Validate() error }](b []byte) (T, error) {
	var v T
	if err := contract.DecodeStrict(b, contract.MaxTurn, &v); err != nil {
		return v, err
	}
	return v, v.Validate()
}

func messages() []message {
	out := []message{
		{"event.json", reflect.TypeFor[contract.Event](), strict(contract.UnmarshalEvent)},
		{"director-task.json", reflect.TypeFor[contract.DirectorTask](), strict(contract.DecodeTask)},
		{"associate-result.json", reflect.TypeFor[contract.AssociateResult](), strict(contract.DecodeResult)},
		{"turn-request.json", reflect.TypeFor[contract.TurnRequest](), strict(direct[contract.TurnRequest])},
		{"turn.json", reflect.TypeFor[contract.Turn](), strict(direct[contract.Turn])},
		{"turn-chunk.json", reflect.TypeFor[contract.TurnChunk](), strict(direct[contract.TurnChunk])},
		{"theme.json", reflect.TypeFor[contract.Theme](), strict(contract.DecodeTheme)},
	}
	for _, info := range contract.Types() {
		out = append(out, message{"data/" + info.Type + ".json", reflect.TypeOf(info.New()).Elem(), func(b []byte) (any, error) {
			return contract.DecodeData(info.Type, b)
		}})
	}
	return out
}

func compile(t testing.TB, name string) *jsonschema.Schema {
	t.Helper()
	raw, err := schema.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(schema.BaseURI+name, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(schema.BaseURI + name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func conforms(s *jsonschema.Schema, b []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

func encode(t interface{ Fatalf(string, ...any) }, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	return b
}

func TestEverySchemaHasAMessage(t *testing.T) {
	var names []string
	for _, m := range messages() {
		names = append(names, m.schema)
	}
	have := map[string]bool{}
	for _, n := range schema.Names() {
		have[n] = true
	}
	for _, n := range names {
		if !have[n] {
			t.Errorf("%s is not published", n)
		}
		delete(have, n)
	}
	for n := range have {
		t.Errorf("%s is published but is of no message", n)
	}
}

// TestDecoderAndSchemaAgree shows that decoder and schema both accept a valid value, which decodes
// to what was encoded, and that both refuse a value that is wrong in one place, which the decoder
// names.
func TestDecoderAndSchemaAgree(t *testing.T) {
	for _, m := range messages() {
		t.Run(strings.TrimSuffix(m.schema, ".json"), func(t *testing.T) {
			s := compile(t, m.schema)
			rapid.Check(t, func(t *rapid.T) {
				v := arbitrary(t, m.typ, contract.Rule{}, 0)
				raw := encode(t, v.Interface())
				got, err := m.decode(raw)
				if err != nil {
					t.Fatalf("refused: %v\n%s", err, raw)
				}
				if d := cmp.Diff(v.Interface(), reflect.ValueOf(got).Elem().Interface()); d != "" {
					t.Fatalf("changed on the way: %s", d)
				}
				if err := conforms(s, raw); err != nil {
					t.Fatalf("the schema refuses what the decoder takes: %v\n%s", err, raw)
				}
				bad, field, why := spoil(t, m.typ, raw)
				_, err = m.decode(bad)
				fe := contract.AsFieldError(err)
				if fe == nil || !strings.HasSuffix(fe.Field, field) {
					t.Fatalf("%s of %s: the decoder says %v\n%s", why, field, err, bad)
				}
				if conforms(s, bad) == nil {
					t.Fatalf("%s of %s: the schema takes it\n%s", why, field, bad)
				}
			})
		})
	}
}

// spoil makes one top-level field of an encoded message invalid.
func spoil(t *rapid.T, typ reflect.Type, raw []byte) (bad []byte, field, why string) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatalf("%v", err)
	}
	set := func(name, value string) []byte {
		m[name] = json.RawMessage(value)
		return encode(t, m)
	}
	fields := contract.Fields(typ)
	if len(fields) == 0 || rapid.IntRange(0, 5).Draw(t, "how") == 0 {
		return set("surplus", "1"), "surplus", "a surplus field"
	}
	f := rapid.SampledFrom(fields).Draw(t, "field")
	if f.Type == reflect.TypeFor[json.RawMessage]() {
		return set("surplus", "1"), "surplus", "a surplus field"
	}
	ways := []string{"null", "type"}
	if f.Needed {
		ways = append(ways, "absence")
	}
	text := f.Type.Kind() == reflect.String && contract.EnumValues(f.Type) == nil
	if text && f.Type == reflect.TypeFor[string]() && f.Rule.Max != nil && *f.Rule.Max < 1<<19 {
		ways = append(ways, "length")
	}
	if contract.EnumValues(f.Type) != nil {
		ways = append(ways, "value")
	}
	if f.Rule.Form == "path" {
		ways = append(ways, "escape")
	}
	if f.Rule.Form == "id" || f.Rule.Form == "commit" || f.Rule.Form == "time" {
		ways = append(ways, "value")
	}
	if f.Rule.Max != nil && f.Type.Kind() == reflect.Int {
		ways = append(ways, "size")
	}
	switch why = rapid.SampledFrom(ways).Draw(t, "way"); why {
	case "null":
		return set(f.Name, "null"), f.Name, why
	case "type":
		wrong := `[1]`
		if k := f.Type.Kind(); k == reflect.Slice || k == reflect.Struct || k == reflect.Map || k == reflect.Pointer {
			wrong = `"x"`
		}
		if f.Type == reflect.TypeFor[time.Time]() {
			wrong = `"yesterday"`
		}
		bad, field = set(f.Name, wrong), f.Name
	case "absence":
		delete(m, f.Name)
		bad, field = encode(t, m), ""
	case "length":
		bad, field = set(f.Name, `"`+strings.Repeat("a", int(*f.Rule.Max)+1)+`"`), f.Name
	case "value":
		bad, field = set(f.Name, `"no such"`), f.Name
	case "escape":
		p := rapid.SampledFrom([]string{"/etc/passwd", "..", "../x", "a/../../x", ".git", ".git/config", "a//b", "./a", "a/"}).Draw(t, "path")
		bad, field = set(f.Name, `"`+p+`"`), f.Name
	case "size":
		bad, field = set(f.Name, fmt.Sprintf("%.0f", *f.Rule.Max+1)), f.Name
	}
	return bad, field, why
}

func TestStrictness(t *testing.T) {
	good := `{"text":"hi","budget":{"wall_s":1,"tool_calls":0,"tokens":0,"cost_usd":0}}`
	if _, err := contract.DecodeData("prompt.submitted", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, in, field string }{
		{"another case", `{"Text":"hi"}`, "data.Text"},
		{"twice", `{"text":"hi","text":"ho"}`, "data.text"},
		{"twice, escaped", `{"text":"hi","te\u0078t":"ho"}`, "data.text"},
		{"twice, nested", `{"text":"hi","budget":{"wall_s":1,"wall_s":2}}`, "data.budget.wall_s"},
		{"null", `{"text":"hi","budget":null}`, "data.budget"},
		{"unknown", `{"text":"hi","x":1}`, "data.x"},
		{"after the end", `{"text":"hi"} {}`, "data"},
		{"not UTF-8", "{\"text\":\"\xff\"}", "data"},
		{"NUL", `{"text":"\u0000"}`, "data.text"},
		{"negative", `{"text":"hi","budget":{"tokens":-1}}`, "data.budget.tokens"},
		{"too large", `{"text":"hi","budget":{"wall_s":86401}}`, "data.budget.wall_s"},
		{"not an object", `[]`, "data"},
	} {
		_, err := contract.DecodeData("prompt.submitted", []byte(c.in))
		if fe := contract.AsFieldError(err); fe == nil || fe.Field != c.field {
			t.Errorf("%s: %v; want field %s", c.name, err, c.field)
		}
	}
}

func TestNestedValuesAreBounded(t *testing.T) {
	task := contract.DirectorTask{ID: contract.NewID(), Run: contract.NewID(), Kind: contract.KindAgent, Goal: "g"}.WithDefaults()
	long := strings.Repeat("x", 70000)
	result := contract.AssociateResult{Version: 1, Task: task.ID, Attempt: 1, Status: contract.ResultOK, Summary: "s",
		Verification: contract.Verification{Profile: contract.VerifyNone, Status: contract.VerificationUnknown}}
	if err := result.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		field string
		err   error
	}{
		{"citations[0].source", with(result, func(r *contract.AssociateResult) { r.Citations = []contract.Citation{{Label: "c1", Source: long}} }).Validate()},
		{"commands[1].argv[0]", with(result, func(r *contract.AssociateResult) { r.Commands = []contract.Command{{}, {Argv: []string{long}}} }).Validate()},
		{"commands[0].exit_code", with(result, func(r *contract.AssociateResult) { r.Commands = []contract.Command{{ExitCode: 300}} }).Validate()},
		{"verification.checks[0].status", with(result, func(r *contract.AssociateResult) {
			r.Verification.Checks = []contract.Check{{Name: "n", Status: "fine"}}
		}).Validate()},
		{"questions[0].deadline", with(result, func(r *contract.AssociateResult) {
			r.Questions = []contract.Question{{ID: "q", Text: "?", Deadline: "soon"}}
		}).Validate()},
		{"usage.tokens_in", with(result, func(r *contract.AssociateResult) { r.Usage.TokensIn = 1 << 62 }).Validate()},
		{"status", with(result, func(r *contract.AssociateResult) { r.Verification.Status = contract.VerificationFail }).Validate()},
		{"message.parts[0].return", contract.TurnRecorded{Message: contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Return: &contract.ToolReturn{ID: "x"}}}}}.Validate()},
		{"returns[0].parts[0]", contract.TurnRecorded{Message: contract.Message{Role: contract.MessageAssistant}, Returns: []contract.Message{{Role: contract.MessageUser, Parts: []contract.Part{{}}}}}.Validate()},
		{"verify.commands[0]", with(task, func(t *contract.DirectorTask) { t.Verify.Commands = [][]string{{""}} }).Validate()},
		{"steps[0].git.ref", with(task, func(t *contract.DirectorTask) {
			t.Kind, t.Steps = contract.KindGit, []contract.Step{{Git: &contract.GitStep{Op: contract.GitRestore}}}
		}).Validate()},
		{"sha256", contract.DocumentProposed{Proposal: task.Run, Document: task.ID, Author: "a", SHA256: contract.NewBlobRef([32]byte{}), Body: "b"}.Validate()},
		{"revision", contract.ProposalResolved{Proposal: task.Run, Document: task.ID, Resolution: contract.ProposalAccepted, By: "u"}.Validate()},
		{"revision", contract.ProposalResolved{Proposal: task.Run, Document: task.ID, Resolution: contract.ProposalDismissed, By: "u", Revision: 1}.Validate()},
		{"successor", contract.ProposalResolved{Proposal: task.Run, Document: task.ID, Resolution: contract.ProposalSuperseded, By: "u"}.Validate()},
		{"successor", contract.ProposalResolved{Proposal: task.Run, Document: task.ID, Resolution: contract.ProposalSuperseded, By: "u", Successor: task.Run}.Validate()},
		{"successor", contract.ProposalResolved{Proposal: task.Run, Document: task.ID, Resolution: contract.ProposalAccepted, By: "u", Revision: 1, Successor: task.ID}.Validate()},
		{"digest", contract.ApprovalRequested{Approval: task.ID, Act: contract.Act{Kind: contract.ApprovalEgress, Run: task.Run, Host: "a.example", Port: 443}, Digest: "x", Attempt: 1, Deadline: "2026-01-02T03:04:05Z"}.Validate()},
		{"act.url", contract.ApprovalRequested{Approval: task.ID, Act: contract.Act{Kind: contract.ApprovalFetch, Run: task.Run, Host: "a.example", Port: 443}, Attempt: 1, Deadline: "2026-01-02T03:04:05Z"}.Validate()},
		{"act.method", contract.ApprovalRequested{Approval: task.ID, Act: contract.Act{Kind: contract.ApprovalRequest, Run: task.Run, Host: "a.example", Port: 443, URL: "https://a.example/", Method: "GET", Sends: contract.NewBlobRef([32]byte{})}, Attempt: 1, Deadline: "2026-01-02T03:04:05Z"}.Validate()},
		{"act.sends", contract.ApprovalRequested{Approval: task.ID, Act: contract.Act{Kind: contract.ApprovalRequest, Run: task.Run, Host: "a.example", Port: 443, URL: "https://a.example/", Method: "POST"}, Attempt: 1, Deadline: "2026-01-02T03:04:05Z"}.Validate()},
		{"act.again", contract.ApprovalRequested{Approval: task.ID, Act: contract.Act{Kind: contract.ApprovalEgress, Run: task.Run, Host: "a.example", Port: 443, Again: task.ID}, Attempt: 1, Deadline: "2026-01-02T03:04:05Z"}.Validate()},
		{"approval", contract.EffectIntended{Effect: task.ID, Kind: contract.EffectRequest, Target: "POST https://a.example/", Digest: "d", Args: contract.NewBlobRef([32]byte{}), Call: "c", Attempt: 1}.Validate()},
		{"act.port", contract.ApprovalRequested{Approval: task.ID, Act: contract.Act{Kind: contract.ApprovalEgress, Run: task.Run, Host: "a.example"}, Attempt: 1, Deadline: "2026-01-02T03:04:05Z"}.Validate()},
		{"reason", contract.ApprovalAnswered{Approval: task.ID, Digest: "x", Answer: contract.ApprovalRun, Reason: "timeout"}.Validate()},
		{"resolution", contract.ProposalResolved{Proposal: task.Run, Document: task.ID, Resolution: "maybe", By: "u"}.Validate()},
		{"sha256", contract.DocumentRevised{Document: task.ID, Title: "t", Path: "artifacts/x.md", Revision: 1, Author: "a", SHA256: contract.NewBlobRef([32]byte{}), Body: "b"}.Validate()},
	} {
		if fe := contract.AsFieldError(c.err); fe == nil || fe.Field != c.field {
			t.Errorf("%v; want field %s", c.err, c.field)
		}
	}
}

func with[T any](v T, change func(*T)) T { change(&v); return v }

func TestEncodeDataKnowsItsType(t *testing.T) {
	if _, err := contract.EncodeData("run.moved", &contract.RunSteered{Text: "x"}); contract.AsFieldError(err) == nil {
		t.Errorf("another type's data: %v", err)
	}
	if _, err := contract.EncodeData("run.steered", (*contract.RunSteered)(nil)); contract.AsFieldError(err) == nil {
		t.Errorf("nil data: %v", err)
	}
	if _, err := contract.EncodeData("run.steered", nil); contract.AsFieldError(err) == nil {
		t.Errorf("no data: %v", err)
	}
	if _, err := contract.EncodeData("run.steered", contract.RunSteered{Text: "x"}); err != nil {
		t.Errorf("a value instead of a pointer: %v", err)
	}
}

func TestAnEventIsACloudEvent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := arbitrary(t, reflect.TypeFor[contract.Event](), contract.Rule{}, 0).Interface().(contract.Event)
		raw, err := contract.MarshalEvent(e)
		if err != nil {
			t.Fatalf("%v", err)
		}
		var ce cloudevents.Event
		if err := json.Unmarshal(raw, &ce); err != nil {
			t.Fatalf("the CloudEvents library can't read %s: %v", raw, err)
		}
		if err := ce.Validate(); err != nil {
			t.Fatalf("the CloudEvents library refuses %s: %v", raw, err)
		}
		back := encode(t, ce)
		got, err := contract.UnmarshalEvent(back)
		if err != nil {
			t.Fatalf("%v\n%s", err, back)
		}
		if d := cmp.Diff(e, got); d != "" {
			t.Fatalf("changed on the way: %s", d)
		}
	})
}

// TestDigestStaysWhatItIs: stored states contain digests that earlier versions computed, so digests
// must never change.
func TestDigestStaysWhatItIs(t *testing.T) {
	e := contract.Event{ID: "i", Source: "s", Type: "t", Subject: "u", User: "v", Run: "r", Task: "k", Causation: "c", Correlation: "o",
		DataRef: "d", Data: json.RawMessage(` { "a" : " \" b\\", "c": [1, 2] }`)}
	const want = "744711c6cb67e63e38696b61b84c2451272bb71a7c79c7871757cd77fa042050"
	if got := hex.EncodeToString(digestOf(e)); got != want {
		t.Errorf("the digest is %s, it was %s", got, want)
	}
}

// TestTheChainStaysWhatItIs: logs are never rewritten, so an event from before events were chained
// decodes and encodes as it was, and links never change.
func TestTheChainStaysWhatItIs(t *testing.T) {
	const old = `{"specversion":"1.0","id":"018f3a00-0000-7000-8000-000000000001","source":"/computers/abcdefghij012345/user","type":"prompt.submitted","time":"2026-01-02T03:04:05.000000006Z","datacontenttype":"application/json","data":{"text":"a \u003c b"},"sequence":1,"epoch":1,"computer":"abcdefghij012345"}`
	const first = "sha256:d4b807c183f062680c2ba501ba4975fe4794d8347929311dff97430132777419"
	e, err := contract.UnmarshalEvent([]byte(old))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := contract.Stored(e); err != nil || string(b) != old {
		t.Fatalf("an old event is stored as %s (%v)", b, err)
	}
	e.Prev = contract.FirstLink(e.Computer)
	b, err := contract.Stored(e)
	if err != nil {
		t.Fatal(err)
	}
	got, err := contract.UnmarshalEvent(b)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := contract.Stored(got); err != nil || !bytes.Equal(again, b) {
		t.Errorf("an event is stored as\n%s\nand after reading as\n%s (%v)", b, again, err)
	}
	for what, pair := range map[string][2]string{
		"the first link":       {string(contract.FirstLink("abcdefghij012345")), first},
		"the link of an event": {string(contract.LinkOf(b)), "sha256:ec4d77f0ea52601352014fdafc43f9ad778deedf7c8d991548fadd4922f18cbe"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %s, it was %s", what, pair[0], pair[1])
		}
	}
	if _, err := contract.UnmarshalEvent(bytes.Replace(b, []byte(`"prev":"sha256:`), []byte(`"prev":"sha256:x`), 1)); contract.AsFieldError(err) == nil || contract.AsFieldError(err).Field != "event.prev" && contract.AsFieldError(err).Field != "prev" {
		t.Errorf("a malformed link: %v", err)
	}
}

func digestOf(e contract.Event) []byte {
	d := contract.Digest(e)
	return d[:]
}

func TestDigestIgnoresOnlyWhatIsStamped(t *testing.T) {
	base := contract.Event{ID: "i", Source: "s", Type: "t", Data: json.RawMessage(`{"a":1}`)}
	same := base
	same.Sequence, same.Epoch, same.Time, same.Traceparent, same.Data = 7, 8, time.Now(), "x", json.RawMessage(` { "a" : 1 } `)
	same.Prev = contract.FirstLink("abcdefghij012345")
	if contract.Digest(base) != contract.Digest(same) {
		t.Error("what the appender stamps changes the digest")
	}
	for name, e := range map[string]contract.Event{
		"data":    with(base, func(e *contract.Event) { e.Data = json.RawMessage(`{"a":2}`) }),
		"subject": with(base, func(e *contract.Event) { e.Subject = "x" }),
		"run":     with(base, func(e *contract.Event) { e.Run = "x" }),
		"user":    with(base, func(e *contract.Event) { e.User = "x" }),
		"shifted": with(base, func(e *contract.Event) { e.Source, e.ID = "si", "" }),
	} {
		if contract.Digest(base) == contract.Digest(e) {
			t.Errorf("%s does not count", name)
		}
	}
}
