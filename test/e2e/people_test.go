package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/rpc/rpctest"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// TestTwoPeopleAndThreeComputers uses two people and three computers on one instance: each person
// sees what was granted and nothing else, method by method, over HTTP and on the bus; streams for
// one session reach no other; and a member who is removed loses what they had open.
func TestTwoPeopleAndThreeComputers(t *testing.T) {
	t.Parallel()
	a := choirtest.Start(t, choirtest.Options{})
	one := only(t, a)
	var shared, theirs view.Computer
	a.JSON(t, &shared, "computers", "create", "Shared")
	mine := signIn(t, a.ClaimURL)

	var made view.Invited
	a.JSON(t, &made, "accounts", "invite", "B", "--power", "computers")
	yours := signIn(t, made.URL)
	other := *a
	other.Token = yours.token(t)
	b := &other
	b.JSON(t, &theirs, "computers", "create", "Theirs")
	var invitation view.Invitation
	a.JSON(t, &invitation, "members", "invite", "--role", "editor", "--computer", string(shared.ID))
	var joined view.Membership
	b.JSON(t, &joined, "join", invitation.Token)
	if joined.Computer != shared.ID || joined.Role != grant.Editor {
		t.Fatalf("joined %+v", joined)
	}
	sees(t, a, one, shared.ID)
	sees(t, b, shared.ID, theirs.ID)
	if res, err := b.Run(t.Context(), "join", invitation.Token); err != nil || res.Code == 0 {
		t.Errorf("an invitation is used twice: %v, %+v", err, res)
	}
	for _, verb := range [][]string{{"secrets", "ls"}, {"accounts"}, {"models", "test"}, {"members", "invite", "--computer", string(shared.ID)}} {
		if res, err := b.Run(t.Context(), verb...); err != nil || res.Code == 0 || !strings.Contains(res.Stderr, "takes the") {
			t.Errorf("choir %s: %v, %+v", strings.Join(verb, " "), err, res)
		}
	}

	for who, p := range map[string]struct {
		d       *desk
		token   string
		own     contract.CID
		foreign contract.CID
	}{"the machine's owner": {mine, a.Token, one, theirs.ID}, "B": {yours, b.Token, theirs.ID, one}} {
		p.d.open(t, p.own)
		overHTTP(t, who, p.d, p.token, p.foreign)
		onTheBus(t, who, p.d, p.foreign)
	}
	streamsAreTheirSessions(t, mine, yours, shared.ID)
	takenOut(t, a, yours, made.Account.ID, shared.ID)
}

// TestASecondPersonNeedsNoBrowser shows that a sign-in link gives its holder a token, once, with
// which they can join.
func TestASecondPersonNeedsNoBrowser(t *testing.T) {
	t.Parallel()
	a := choirtest.Start(t, choirtest.Options{})
	var made view.Invited
	a.JSON(t, &made, "accounts", "invite", "B")
	var in client.SignedIn
	signs := func() choirtest.Result {
		return verb(t, nil, made.URL+"\n", nil, "sign-in", "--name", "laptop", "--json")
	}
	if r := signs(); r.Code != 0 {
		t.Fatalf("%+v", r)
	} else if err := json.Unmarshal([]byte(r.Stdout), &in); err != nil {
		t.Fatal(err)
	}
	if in.Account.ID != made.Account.ID || in.Token.Name != "laptop" || in.Token.Secret == "" {
		t.Errorf("signed in as %+v", in)
	}
	if again := signs(); again.Code != 1 || strings.Contains(again.Stderr, mustParse(t, made.URL).Fragment) {
		t.Errorf("with the same link again: %+v", again)
	}
	b := *a
	b.URL, b.Token = in.URL, in.Token.Secret
	var invitation view.Invitation
	a.JSON(t, &invitation, "members", "invite", "--role", "viewer")
	var joined view.Membership
	b.JSON(t, &joined, "join", invitation.Token)
	if joined.Role != grant.Viewer {
		t.Errorf("joined %+v", joined)
	}
	sees(t, &b, only(t, a))
}

// only returns the id of the only computer.
func only(t *testing.T, in *choirtest.Instance) contract.CID {
	t.Helper()
	var list []view.Computer
	in.JSON(t, &list, "computers")
	if len(list) != 1 {
		t.Fatalf("there are %d computers", len(list))
	}
	return list[0].ID
}

func sees(t *testing.T, in *choirtest.Instance, want ...contract.CID) {
	t.Helper()
	var list []view.Computer
	in.JSON(t, &list, "computers")
	got := []contract.CID{}
	for _, c := range list {
		got = append(got, c.ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("sees %v, was granted %v", got, want)
	}
}

// token makes an API token as the console's page does.
func (d *desk) token(t *testing.T) string {
	t.Helper()
	b, _ := d.must(t, http.MethodPost, d.console+"/api/tokens", d.own(), []byte(`{"name":"a token"}`))
	var k view.Token
	decode(t, b, &k)
	return k.Secret
}

// asks sends a request as a program does or, without a token, as the console's page does.
func (d *desk) asks(t *testing.T, r rpctest.Request, token string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Verb, d.console+r.Target, strings.NewReader(r.Body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	} else {
		req.Header = d.own()
	}
	req.Header.Set("Content-Type", r.Content)
	res, err := d.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// overHTTP calls every method on somebody else's computer, as a program and as the console's page:
// each answers as if there were no such computer.
func overHTTP(t *testing.T, who string, d *desk, token string, foreign contract.CID) {
	t.Helper()
	unknown, asked := contract.NewCID(), 0
	for _, m := range rpc.All() {
		about := m.About()
		if about.HTTP.ID == "" || about.Needs == rpc.Plane {
			continue
		}
		for door, as := range map[string]string{"a program": token, "the console": ""} {
			if as == "" && about.Callers&rpc.Console == 0 || as != "" && about.Callers&rpc.Program == 0 {
				continue
			}
			asked++
			status, body := d.asks(t, rpctest.HTTP(m, string(foreign), nil), as)
			want, said := d.asks(t, rpctest.HTTP(m, string(unknown), nil), as)
			if status != http.StatusNotFound || status != want || body != said {
				t.Errorf("%s asks %s by %s of somebody else's computer: %d %s; one that there is not answers %d %s", who, about.Name, door, status, body, want, said)
			}
		}
	}
	t.Logf("%s asked %d times over HTTP", who, asked)
}

// onTheBus calls every method that desktops may call on somebody else's computer, with the
// credentials of one's own desktop: the server passes none of these requests on.
func onTheBus(t *testing.T, who string, d *desk, foreign contract.CID) {
	t.Helper()
	var refused atomic.Int64
	d.bus.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if strings.Contains(err.Error(), "ermissions") {
			refused.Add(1)
		}
	})
	answers, err := d.bus.SubscribeSync(d.inbox + ".answers")
	if err != nil {
		t.Fatal(err)
	}
	asked := int64(0)
	for _, m := range rpc.All() {
		if m.About().Callers&rpc.Desktop == 0 {
			continue
		}
		asked++
		subject, body := rpctest.Bus(m, foreign, nil)
		if err := d.bus.PublishRequest(subject, d.inbox+".answers", body); err != nil {
			t.Fatal(err)
		}
	}
	for _, subject := range []string{contract.SubjectLive(foreign), contract.SubjectResult(foreign, "*"), contract.SubjectStreams(foreign, "*"), contract.SubjectWords(foreign, "*")} {
		asked++
		if _, err := d.bus.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
	}
	choirtest.Eventually(t, 20*time.Second, fmt.Sprintf("all %d requests of %s are refused", asked, who), func() bool { return refused.Load() == asked })
	if m, err := answers.NextMsg(10 * time.Millisecond); err == nil {
		t.Errorf("%s was answered: %s", who, m.Data)
	}
}

// streamsAreTheirSessions has one person prompt and run a command in a computer of both: both see
// the events, and only the one gets the text and the output.
func streamsAreTheirSessions(t *testing.T, mine, yours *desk, cid contract.CID) {
	t.Helper()
	mine.open(t, cid)
	yours.open(t, cid)
	words, events := make(chan *nats.Msg, 4096), make(chan *nats.Msg, 4096)
	for d, to := range map[*desk]chan *nats.Msg{mine: words, yours: events} {
		for _, subject := range []string{contract.SubjectLive(cid), d.streams} {
			if _, err := d.bus.ChanSubscribe(subject, to); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.bus.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	id := contract.NewID()
	run := contract.DeriveID(id, "run")
	mine.request(t, contract.SubjectService(cid, "run", "follow"), fmt.Sprintf(`{"run":%q}`, run))
	mine.request(t, contract.SubjectAction(cid), fmt.Sprintf(`{"type":"prompt.submitted","id":%q,"data":{"text":"write \"mine\" to workspace/said.txt"}}`, id))
	if n := until(t, words, run); n == 0 {
		t.Error("who prompted heard nothing of their run's words")
	}
	if n := until(t, events, run); n != 0 {
		t.Errorf("another session heard the words of a run that it does not follow, %d times", n)
	}
	command := contract.NewID()
	mine.request(t, contract.SubjectService(cid, "exec", "run"), fmt.Sprintf(`{"id":%q,"argv":["echo","mine"]}`, command))
	ask := fmt.Sprintf(`{"command":%q,"after":-1,"wait":true}`, command)
	choirtest.Eventually(t, 30*time.Second, "the command's output is there", func() bool {
		return strings.Contains(mine.request(t, contract.SubjectService(cid, "exec", "output"), ask), "mine")
	})
	if got := yours.request(t, contract.SubjectService(cid, "exec", "output"), ask); !strings.Contains(got, "not_found") {
		t.Errorf("another session reads a command's output: %s", got)
	}
}

// until counts the pieces of a run's text until the run is reported.
func until(t *testing.T, got <-chan *nats.Msg, run string) (words int) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for {
		select {
		case m := <-got:
			if strings.HasPrefix(m.Subject, "stream.") {
				words++
			}
			if strings.HasSuffix(m.Subject, ".run.reported") && bytes.Contains(m.Data, []byte(run)) {
				return words
			}
		case <-late:
			t.Fatal("the run's report was not seen")
		}
	}
}

func (d *desk) request(t *testing.T, subject, body string) string {
	t.Helper()
	m, err := d.bus.Request(subject, []byte(body), 30*time.Second)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	return string(m.Data)
}

// takenOut removes a member from a computer while they look at it and their command runs.
func takenOut(t *testing.T, a *choirtest.Instance, d *desk, account string, cid contract.CID) {
	t.Helper()
	command := contract.NewID()
	if got := d.request(t, contract.SubjectService(cid, "exec", "run"), fmt.Sprintf(`{"id":%q,"argv":["sleep","600"]}`, command)); !strings.Contains(got, command) {
		t.Fatalf("exec: %s", got)
	}
	a.Must(t, "members", "rm", account, "--computer", string(cid))
	begun := time.Now()
	choirtest.Eventually(t, 20*time.Second, "the connection of who was taken out ends", d.bus.IsClosed)
	t.Logf("the connection ended %s later", time.Since(begun))
	choirtest.Eventually(t, 30*time.Second, "the command of who was taken out ends", func() bool {
		return strings.Contains(a.Must(t, "events", "--type", "command.finished", "--computer", string(cid), "--json"), command)
	})
	if status, body := d.asks(t, rpctest.HTTP(rpc.ComputerGet, string(cid), nil), ""); status != http.StatusNotFound {
		t.Errorf("who was taken out is answered %d %s", status, body)
	}
	var members []view.Member
	if err := json.Unmarshal([]byte(a.Must(t, "members", "--computer", string(cid), "--json")), &members); err != nil || len(members) != 1 {
		t.Errorf("members: %+v, %v", members, err)
	}
}
