package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"choir.dev/choiros/test/choirtest"
)

// TestGitGivesWhatVisibleRefsReach: an object that only a hidden ref reaches, or none, is not given
// to a client that knows its id, by whichever protocol it asks. What a visible ref reaches is, however
// stock git asks for it.
func TestGitGivesWhatVisibleRefsReach(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	makeRepository(t, in, "app")
	ids := strings.Fields(inComputer(t, in, `cd workspace/app && for n in 2 3 4 5; do echo $n > a.txt; mkdir -p d; echo $n > d/$n.txt; git add . && git commit -qm $n; done
git tag -a -m tagged v1 HEAD~1
git rev-parse HEAD HEAD~2 HEAD~3:d/2.txt v1
git checkout -q -b hidden && echo hidden > hidden.txt && git add . && git commit -qm hidden && git update-ref refs/choir/kept HEAD && git rev-parse HEAD HEAD: HEAD:hidden.txt
git commit -q --amend -m dangling && git rev-parse HEAD
git checkout -q main && git branch -q -D hidden`))
	if len(ids) != 8 {
		t.Fatalf("the repository has %q", ids)
	}
	head, older, blob, tag, unseen := ids[0], ids[1], ids[2], ids[3], ids[4:]
	a := access(t, in, "workspace/app")
	at := a.with(a.Token.Secret)

	for _, id := range []string{head, older, blob, tag} {
		if got := wants(t, a, 2, id, head); !strings.Contains(got, "PACK") {
			t.Errorf("%s is not given: %q", id, got)
		}
	}
	mine := t.TempDir()
	mustGit(t, mine, "init", "-q")
	for _, id := range unseen {
		for protocol := range 3 {
			for _, asked := range [][]string{{id}, {strings.ToUpper(id)}, {head, id}, {id, head, blob}} {
				if got := wants(t, a, protocol, asked...); strings.Contains(got, "PACK") {
					t.Errorf("protocol %d gives %s", protocol, id)
				}
			}
			words := "not our ref"
			if protocol < 2 {
				words = "unadvertised object" // the client does not even ask
			}
			refusedGit(t, mine, words, "-c", fmt.Sprintf("protocol.version=%d", protocol), "fetch", at, id)
		}
	}

	dir := t.TempDir()
	for name, args := range map[string][]string{
		"whole": nil, "old": {"-c", "protocol.version=0"}, "shallow": {"--depth", "1"}, "branch": {"--single-branch", "--no-tags"},
		"blobless": {"--filter=blob:none"}, "treeless": {"--filter=tree:0"}, "small": {"--filter=blob:limit=1"},
	} {
		mustGit(t, dir, append(append([]string{"clone", "-q"}, args...), at, name)...)
		clone := filepath.Join(dir, name)
		if b, err := os.ReadFile(filepath.Join(clone, "d/5.txt")); string(b) != "5\n" {
			t.Errorf("%s has %q, %v", name, b, err)
		}
		if name == "shallow" {
			mustGit(t, clone, "fetch", "-q", "--deepen", "1")
			mustGit(t, clone, "fetch", "-q", "--unshallow")
		}
		if got := mustGit(t, clone, "log", "-p", "--format=%H"); !strings.Contains(got, "+one") || !strings.Contains(got, older) {
			t.Errorf("the history of %s is\n%s", name, got)
		}
		mustGit(t, clone, "fetch", "-q", "origin", older)
	}
}

// wants asks for objects by hand and returns the answer.
func wants(t *testing.T, a gitAccess, protocol int, ids ...string) string {
	t.Helper()
	pkt := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	var body strings.Builder
	if protocol == 2 {
		body.WriteString(pkt("command=fetch") + pkt("object-format=sha1") + "0001")
	}
	for i, id := range ids {
		can := ""
		if protocol < 2 && i == 0 {
			can = " side-band-64k ofs-delta"
		}
		body.WriteString(pkt("want " + id + can + "\n"))
	}
	if protocol < 2 {
		body.WriteString("0000")
	}
	body.WriteString(pkt("done\n"))
	if protocol == 2 {
		body.WriteString("0000")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.URL+"/git-upload-pack", bytes.NewReader([]byte(body.String())))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("me", a.Token.Secret)
	req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	if protocol > 0 {
		req.Header.Set("Git-Protocol", fmt.Sprintf("version=%d", protocol))
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil && !strings.Contains(err.Error(), "EOF") {
		t.Fatal(err)
	}
	return string(b)
}
