package ledger

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go"
)

// The parser without a decoder gives the same results as the decoder, and leaves everything
// but the usual acknowledgement to it.
func TestAPlainAcknowledgementIsReadAsTheDecoderReadsIt(t *testing.T) {
	for text, plain := range map[string]bool{
		`{"stream":"EVENTS-1ktq2kr0wpovzeog","seq":1}`:                    true,
		`{"stream":"EVENTS-1ktq2kr0wpovzeog","seq":18446744073709551615}`: true,
		`{"stream":"S","seq":7,"duplicate":true}`:                         false,
		`{"stream":"S","domain":"d","seq":7}`:                             false,
		`{"stream":"S","seq":7,"batch":"b","count":3}`:                    false,
		`{"stream":"S","seq":0}`:                                          false,
		`{"stream":"S","seq":-1}`:                                         false,
		`{"stream":"S","seq":7`:                                           false,
		`{"stream":"S","seq":7}}`:                                         false,
		`{"error":{"code":400,"err_code":10071,"description":"wrong last"},"stream":"S","seq":7}`: false,
		`{"stream":"S\",\"seq\":7,\"error\":{}}`:                                                  false,
		`{"error":{"code":503,"err_code":1,"description":"x"},"stream":"EVENTS-x","seq":0}`:       false,
	} {
		got, ok := plainAck([]byte(text))
		if ok != plain {
			t.Errorf("%s: taken for plain: %v", text, ok)
		}
		var want ack
		if err := json.Unmarshal([]byte(text), &want); ok && (err != nil || got != want) {
			t.Errorf("%s: %+v, the decoder says %+v, %v", text, got, want, err)
		}
	}
}

// An acknowledgement counts only for the message that it answers: not for one that was
// refused before it, and that of a batch only for the whole batch.
func TestAnAcknowledgementIsOfItsOwnMessage(t *testing.T) {
	published := func(batch string) *plan {
		p := &plan{batch: batch}
		for _, reply := range []string{"in.1.0", "in.1.1", "in.1.2"} {
			p.messages = append(p.messages, message{Msg: &nats.Msg{Reply: reply}})
			p.asked = append(p.asked, reply)
		}
		return p
	}
	answer := func(subject string, a ack) *nats.Msg {
		data, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		return &nats.Msg{Subject: subject, Data: data}
	}
	p := published("")
	positions, err := p.heard(answer("in.1.0", ack{Seq: 6}), nil)
	if err != nil || len(positions) != 1 {
		t.Fatalf("%v, %v", positions, err)
	}
	if _, err := p.heard(answer("in.1.1", ack{Error: &apiError{Code: 400}}), positions); err == nil {
		t.Fatal("a refusal counts")
	}
	if got, err := p.heard(answer("in.1.2", ack{Seq: 7}), positions); err == nil || len(got) != 1 {
		t.Errorf("the third's position %v counts for the second, which was refused", got)
	}
	p = published("b")
	p.asked = p.asked[2:]
	if got, err := p.heard(answer("in.1.2", ack{Seq: 7}), nil); err == nil {
		t.Errorf("a batch of three is stored at %v", got)
	}
	p.asked = []string{"in.1.2"}
	if got, err := p.heard(answer("in.1.2", ack{Seq: 7, Count: 3}), nil); err != nil || len(got) != 3 || got[0] != 5 {
		t.Errorf("%v, %v", got, err)
	}
}
