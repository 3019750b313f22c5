package turnlines_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/turnlines"
)

func message(r *rapid.T) contract.Message {
	text := rapid.SampledFrom([]string{"a", "two\nlines", "<tag> & \u2028", "ü"})
	if rapid.Bool().Draw(r, "user") {
		return contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Text: text.Draw(r, "text")}}}
	}
	return contract.Message{Role: contract.MessageAssistant, Parts: []contract.Part{{Call: &contract.ToolCall{ID: "c", Name: "bash", Args: json.RawMessage("{\"command\":\n \"ls\"}")}}}}
}

// TestARequestIsReadTheSameAfterAnyOther: what is kept of a loop's request never changes what the next one says, nor how it is written.
func TestARequestIsReadTheSameAfterAnyOther(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var kept turnlines.Kept
		var encoder turnlines.Encoder
		req := contract.TurnRequest{System: "s", Messages: []contract.Message{message(r)}}
		for range rapid.IntRange(1, 12).Draw(r, "requests") {
			switch rapid.SampledFrom([]string{"grows", "grows", "grows", "changes", "shrinks", "other system", "other tools", "same"}).Draw(r, "what") {
			case "grows":
				req.Messages = append(req.Messages, message(r), message(r))
			case "changes":
				req.Messages[rapid.IntRange(0, len(req.Messages)-1).Draw(r, "at")] = message(r)
			case "shrinks":
				req.Messages = req.Messages[:rapid.IntRange(1, len(req.Messages)).Draw(r, "to")]
			case "other system":
				req.System += "s"
			case "other tools":
				req.Tools = append(req.Tools, contract.ToolSpec{Name: "t", Schema: json.RawMessage(`{"type":"object"}`)})
			}
			body, err := turnlines.Encode(req)
			if err != nil {
				r.Fatal(err)
			}
			if after, err := encoder.Encode(req); err != nil || !bytes.Equal(after, body) {
				r.Fatalf("posted after another: %v\n%s\nby itself\n%s", err, after, body)
			}
			alone, err := turnlines.Decode(bytes.Clone(body))
			if err != nil {
				r.Fatal(err)
			}
			got, next, err := kept.Decode(body)
			if err != nil {
				r.Fatal(err)
			}
			want, _ := json.Marshal(req)
			if has, _ := json.Marshal(got); !reflect.DeepEqual(got, alone) || !bytes.Equal(has, want) {
				r.Fatalf("sent\n%s\nread\n%s", want, has)
			}
			kept = next
		}
	})
}

// TestWhatIsNoRequestIsRefused, also where the request before was one and is kept.
func TestWhatIsNoRequestIsRefused(t *testing.T) {
	const hi = `{"role":"user","parts":[{"text":"hi"}]}`
	first := "{}\n" + hi + "\n" + hi
	_, kept, err := turnlines.Kept{}.Decode([]byte(first))
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"nothing":                "",
		"no message":             "{}",
		"no message, a line":     "{}\n",
		"an empty line":          "{}\n" + hi + "\n\n" + hi,
		"a blank last line":      "{}\n" + hi + "\n ",
		"no JSON":                "{}\n" + hi + "\n{",
		"two on a line":          "{}\n" + hi + hi,
		"another role":           "{}\n" + hi + "\n" + strings.Replace(hi, "user", "system", 1),
		"a field too many":       "{}\n" + hi + "\n" + strings.Replace(hi, `"role"`, `"budget":1,"role"`, 1),
		"the same field twice":   "{}\n" + hi + "\n" + strings.Replace(hi, `"role"`, `"role":"user","role"`, 1),
		"bytes that are no text": "{}\n" + hi + "\n" + strings.Replace(hi, "hi", "\xff", 1),
		"a bad first line":       `{"effort":"utmost"}` + "\n" + hi,
		"a bad first line anew":  `{"tools":[{"name":""}]}` + "\n" + hi + "\n" + hi,
		"a call by the user":     "{}\n" + hi + "\n" + `{"role":"user","parts":[{"call":{"id":"c","name":"n","args":{}}}]}`,
	} {
		for _, k := range []turnlines.Kept{{}, kept} {
			if got, _, err := k.Decode([]byte(body)); err == nil {
				t.Errorf("%s: taken as %+v", name, got)
			}
		}
	}
	if _, err := turnlines.Decode([]byte(`{"messages":[` + hi + `]}`)); err != nil {
		t.Errorf("messages on the first line: %v", err)
	}
}

// TestLinesWithoutEndTakeNoMemory: eight megabytes of line ends are refused before anything is made for each of them.
func TestLinesWithoutEndTakeNoMemory(t *testing.T) {
	body := bytes.Repeat([]byte("\n"), contract.MaxTurn)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := turnlines.Decode(body)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; err == nil || n > 1<<20 {
		t.Errorf("%v: %d bytes were allocated", err, n)
	}
}

func TestARequestHasNoMoreMessagesThanTheContractAllows(t *testing.T) {
	r := contract.TurnRequest{}
	for range 2001 {
		r.Messages = append(r.Messages, contract.Message{Role: contract.MessageUser, Parts: []contract.Part{{Text: "x"}}})
	}
	for n, fine := range map[int]bool{2000: true, 2001: false} {
		few := r
		few.Messages = r.Messages[:n]
		body, err := turnlines.Encode(few)
		if err != nil {
			t.Fatal(err)
		}
		_, err = turnlines.Decode(body)
		if (err == nil) != fine || (few.Validate() == nil) != fine {
			t.Errorf("%d messages: %v, and the contract says %v", n, err, few.Validate())
		}
		// The same, having kept all but the last.
		cut := bytes.LastIndexByte(bytes.TrimSuffix(body, []byte("\n")), '\n')
		_, kept, err := turnlines.Kept{}.Decode(body[:cut])
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := kept.Decode(body); (err == nil) != fine {
			t.Errorf("%d messages, of which one is new: %v", n, err)
		}
	}
}

// FuzzDecode: whatever was posted before, a body is taken or refused as it is by itself, and says the same.
func FuzzDecode(f *testing.F) {
	const hi = `{"role":"user","parts":[{"text":"hi"}]}`
	f.Add([]byte("{}\n"+hi), []byte("{}\n"+hi+"\n"+hi))
	f.Add([]byte(`{"messages":[`+hi+`],"system":"s"}`), []byte("{}\n\n"))
	f.Add([]byte("{}\n"+hi+"\n{"), []byte("{}\n"+hi))
	f.Fuzz(func(t *testing.T, before, body []byte) {
		_, kept, _ := turnlines.Kept{}.Decode(before)
		alone, bad := turnlines.Decode(bytes.Clone(body))
		got, _, err := kept.Decode(body)
		if (err == nil) != (bad == nil) || !reflect.DeepEqual(got, alone) {
			t.Fatalf("after another: %v, %+v\nby itself: %v, %+v", err, got, bad, alone)
		}
		if err == nil && got.Validate() != nil {
			t.Fatalf("taken, and not valid: %v", got.Validate())
		}
	})
}
