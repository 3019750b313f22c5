package gitserve

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
)

// TestAClientHearsThatItsPushGoesOn shows that what git says of its work, what is under way and
// that it still is are sent to the client at once, but not while the client still sends, and that
// git's answer is held back.
func TestAClientHearsThatItsPushGoesOn(t *testing.T) {
	order := func(can string) *pushCommands {
		return &pushCommands{can: strings.Fields(can), refs: []contract.PushedRef{{Name: mainBranch}}}
	}
	report := line("\x01" + line("unpack ok\n"))
	for name, try := range map[string]struct{ can, want string }{
		"with side bands": {"report-status side-band-64k", line("\x02resolving\n") + line("\x02Publishing\n") + line("\x02Publishing: 7 s\r") + report + "0000"},
		"quietly":         {"report-status side-band-64k quiet", line("\x02resolving\n") + line("\x02") + report + "0000"},
		"without bands":   {"report-status", line("\x02resolving\n") + report + "0000"}, // git itself sends such a client no progress
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			talk := newPushReply(&out, order(try.can))
			said := line("\x02resolving\n") + report + "0000"
			for _, b := range []byte(said) { // in as many parts as there can be
				if _, err := talk.Write([]byte{b}); err != nil {
					t.Fatal(err)
				}
			}
			if out.Len() > 0 {
				t.Errorf("while it sends the client is told %q", out.String())
			}
			talk.listen()
			talk.say("Publishing")
			if strings.Contains(out.String(), "unpack ok") {
				t.Error("git's answer was not held")
			}
			if talk.most > 0 {
				tick := make(chan time.Time)
				talk.alive.Go(func() { talk.keepAlive(tick) }) // the end waits for this
				tick <- talk.since.Add(7 * time.Second)
			}
			answer, err := talk.answer()
			if err != nil {
				t.Fatal(err)
			}
			if err := talk.end(answer); err != nil {
				t.Fatal(err)
			}
			if out.String() != try.want {
				t.Errorf("the client heard\n%q, want\n%q", out.String(), try.want)
			}
		})
	}
}
