package control_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/identity"
)

// basic returns the header in which git sends a token.
func basic(secret string) string {
	return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("any name:"+secret))
}

// gitToken makes a token for git for a user.
func (w *world) gitToken(user string, cid contract.CID, repository string, write bool) (id, secret string) {
	w.t.Helper()
	k, secret, err := w.ids.NewGitToken(context.Background(), user, "", "git", identity.GitScope{
		Computer: cid, Repository: repository, Write: write, Expires: time.Now().Add(time.Hour),
	})
	check(w.t, err)
	return k.ID, secret
}

// fetches asks what a repository has, as git fetch does, and pushes what it would accept, as git
// push does.
func (w *world) fetches(at string, headers ...string) answer {
	return w.ask("GET", hostOf(w.console()), at+"/info/refs?service=git-upload-pack", "", headers...)
}

func (w *world) pushes(at string, headers ...string) answer {
	return w.ask("POST", hostOf(w.console()), at+"/git-receive-pack", "orders", headers...)
}

// TestATokenIsOfARepository shows that a token can be made only for a repository that git can be
// served from.
func TestATokenIsOfARepository(t *testing.T) {
	w := open(t)
	at := "/api/computers/" + string(w.machine().cid) + "/git/tokens"
	for repository, status := range map[string]int{"workspace/app": http.StatusOK, "": http.StatusOK, "workspace/folder": http.StatusNotFound, "workspace/none": http.StatusNotFound} {
		res := w.ask("POST", hostOf(w.console()), at, `{"name":"git","repository":"`+repository+`"}`, "Authorization: Bearer "+w.token)
		if res.StatusCode != status || strings.Contains(res.body, "choir_git_") != (status == http.StatusOK) {
			t.Errorf("for %q: %d %s", repository, res.StatusCode, res.body)
		}
	}
}

// TestGitIsLetIn shows that git is let in with a token as its password, if its account may, for
// what the token was made for.
func TestGitIsLetIn(t *testing.T) {
	w := open(t)
	w.ask("GET", hostOf(w.console()), "/api/computers", "", "Authorization: Bearer "+w.token) // this records whose token it is
	cid := w.machine().cid
	at := "/git/" + string(cid) + "/workspace/app.git"
	id, secret := w.gitToken(w.owner.ID, cid, "workspace/app", true)
	_, reads := w.gitToken(w.owner.ID, cid, "workspace/app", false)
	_, other := w.gitToken(w.owner.ID, cid, "workspace/other", true)
	_, own := w.gitToken(w.owner.ID, cid, "", false)

	if res := w.fetches(at); res.StatusCode != http.StatusUnauthorized || !strings.HasPrefix(res.Header.Get("WWW-Authenticate"), "Basic ") {
		t.Errorf("without a token: %d %v", res.StatusCode, res.Header)
	}
	for _, wrong := range []string{basic("choir_git_" + strings.Repeat("a", 43)), basic(""), "Authorization: Bearer " + secret} {
		if res := w.fetches(at, wrong); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", wrong, res.StatusCode, res.body)
		}
	}
	for _, good := range []string{secret, reads, w.token} {
		res := w.fetches(at, basic(good), "Git-Protocol: version=2")
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/x-git-upload-pack-advertisement" ||
			!strings.HasPrefix(res.body, `git-upload-pack of "workspace/app", version 2, by `+w.owner.ID) {
			t.Errorf("%d %v %s", res.StatusCode, res.Header, res.body)
		}
	}
	if res := w.fetches("/git/-.git", basic(own)); res.StatusCode != http.StatusOK || !strings.Contains(res.body, `of ""`) {
		t.Errorf("the history of its files: %d %s", res.StatusCode, res.body)
	}
	if res := w.pushes(at, basic(secret), "Git-Protocol: version=2"); res.StatusCode != http.StatusOK || !strings.Contains(res.body, "version 0, by "+w.owner.ID+": orders") {
		t.Errorf("a push: %d %s", res.StatusCode, res.body)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte("what I have"))
	check(t, z.Close())
	if res := w.ask("POST", hostOf(w.console()), at+"/git-upload-pack", packed.String(), basic(reads), "Content-Encoding: gzip"); !strings.HasSuffix(res.body, ": what I have") {
		t.Errorf("compressed: %d %s", res.StatusCode, res.body)
	}

	for what, res := range map[string]answer{
		"another repository":                             w.fetches(at, basic(other)),
		"the computer's own history with a repository's": w.fetches("/git/"+string(cid)+".git", basic(secret)),
		"a push to another repository":                   w.pushes(at, basic(other)),
	} {
		if res.StatusCode != http.StatusNotFound {
			t.Errorf("a token reaches %s: %d %s", what, res.StatusCode, res.body)
		}
	}
	if res := w.pushes(at, basic(reads)); res.StatusCode != http.StatusForbidden || !strings.Contains(res.body, "for reading") {
		t.Errorf("a token that reads pushes: %d %s", res.StatusCode, res.body)
	}
	if res := w.fetches(at, append(fetched(w.console()), basic(secret))...); res.StatusCode != http.StatusForbidden {
		t.Errorf("a page uses git: %d %s", res.StatusCode, res.body)
	}
	if res := w.ask("GET", hostOf(w.console()), "/api/computers", "", "Authorization: Bearer "+secret); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("the API takes a token for git: %d %s", res.StatusCode, res.body)
	}
	for _, none := range []string{"/git/", "/git/x", "/git/" + string(cid) + "/workspace/none.git", "/git/" + string(contract.NewCID()) + ".git"} {
		if res := w.fetches(none, basic(w.token)); res.StatusCode != http.StatusNotFound && res.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", none, res.StatusCode, res.body)
		}
	}
	if _, err := w.ids.RevokeToken(context.Background(), w.owner.ID, id); err != nil {
		t.Fatal(err)
	}
	if res := w.fetches(at, basic(secret)); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("a revoked token: %d %s", res.StatusCode, res.body)
	}
	if s := w.log.String(); strings.Contains(s, secret) || strings.Contains(s, reads) || strings.Contains(s, w.token) {
		t.Error("a token is in the logs")
	}
}

// TestGitByRole shows that any member of a computer can fetch, that those who may change it can
// push, and that for anybody else there is no such computer, whatever their token says.
func TestGitByRole(t *testing.T) {
	w := open(t)
	w.ask("GET", hostOf(w.console()), "/api/computers", "", "Authorization: Bearer "+w.token) // this records whose token it is
	cid := w.machine().cid
	at := "/git/" + string(cid) + "/workspace/app.git"
	b := w.person("B")
	if res := w.fetches(at, basic(b.token)); res.StatusCode != http.StatusNotFound {
		t.Errorf("who is no member: %d %s", res.StatusCode, res.body)
	}
	w.join(b, cid, grant.Viewer)
	_, secret := w.gitToken(b.ID, cid, "workspace/app", true)
	if res := w.fetches(at, basic(secret)); res.StatusCode != http.StatusOK {
		t.Errorf("a viewer: %d %s", res.StatusCode, res.body)
	}
	for _, token := range []string{secret, b.token} {
		if res := w.pushes(at, basic(token)); res.StatusCode != http.StatusForbidden {
			t.Errorf("a viewer pushes: %d %s", res.StatusCode, res.body)
		}
	}
	mine := w.computer("B's", b.ID)
	if res := w.fetches("/git/"+string(mine.cid)+"/workspace/app.git", basic(secret)); res.StatusCode != http.StatusNotFound {
		t.Errorf("a token reaches another computer: %d %s", res.StatusCode, res.body)
	}
	_, reads := w.gitToken(b.ID, cid, "workspace/app", false)
	for _, change := range []struct {
		to    grant.Role
		good  []string
		ended []string
	}{
		{grant.Editor, []string{secret, reads}, nil}, {grant.Viewer, []string{reads}, []string{secret}}, {grant.None, nil, []string{secret, reads}},
	} {
		var err error
		if change.to == grant.None {
			_, err = w.ids.RemoveMember(context.Background(), cid, b.ID)
		} else {
			_, err = w.ids.SetRole(context.Background(), cid, b.ID, change.to)
		}
		check(t, err)
		if change.to == grant.None {
			w.join(b, cid, grant.Editor) // a member who comes back does not get back the tokens that they lost
		}
		for _, token := range change.good {
			if res := w.fetches(at, basic(token)); res.StatusCode != http.StatusOK {
				t.Errorf("as %q: %d %s", change.to, res.StatusCode, res.body)
			}
		}
		for _, token := range change.ended {
			if res := w.fetches(at, basic(token)); res.StatusCode != http.StatusUnauthorized {
				t.Errorf("a token outlives what it was made by, as %q: %d %s", change.to, res.StatusCode, res.body)
			}
		}
	}
}
