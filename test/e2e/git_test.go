package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/view"
	"choir.dev/choiros/test/choirtest"
)

// gitAccess is what choir git url prints.
type gitAccess struct {
	URL        string     `json:"url"`
	Repository string     `json:"repository"`
	Token      view.Token `json:"token"`
}

// with puts a token into a repository's address.
func (a gitAccess) with(secret string) string {
	return strings.Replace(a.URL, "://", "://me:"+secret+"@", 1)
}

// access makes a token for git.
func access(t *testing.T, in *choirtest.Instance, args ...string) gitAccess {
	t.Helper()
	var a gitAccess
	in.JSON(t, &a, append([]string{"git", "url"}, args...)...)
	return a
}

// gitIn runs stock git without any configuration.
func gitIn(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "HOME="+t.TempDir(), "LC_ALL=C.UTF-8",
		"GIT_AUTHOR_NAME=me", "GIT_AUTHOR_EMAIL=me@example.org", "GIT_COMMITTER_NAME=me", "GIT_COMMITTER_EMAIL=me@example.org")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mustGit is gitIn for commands that must succeed.
func mustGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := gitIn(t, dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// refusedGit is gitIn for commands that must be refused with these words.
func refusedGit(t *testing.T, dir string, words string, args ...string) {
	t.Helper()
	out, err := gitIn(t, dir, args...)
	if err == nil || !strings.Contains(out, words) {
		t.Errorf("git %s: %v, without %q:\n%s", strings.Join(args, " "), err, words, out)
	}
}

// commits makes a commit of one file in a clone.
func commits(t *testing.T, dir, name, content string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	mustGit(t, dir, "add", "-A")
	mustGit(t, dir, "commit", "-q", "-m", "change "+name)
	return strings.TrimSpace(mustGit(t, dir, "rev-parse", "HEAD"))
}

// makeRepository makes a repository in the computer, with a commit on main.
func makeRepository(t *testing.T, in *choirtest.Instance, name string) {
	t.Helper()
	in.Must(t, "exec", "--", "sh", "-c", "mkdir -p workspace/"+name+" && cd workspace/"+name+
		" && git init -q -b main && git config user.name me && git config user.email me@example.org && printf 'one\n' > a.txt && git add a.txt && git commit -q -m one")
}

// inComputer runs a shell's line in the computer and returns its output.
func inComputer(t *testing.T, in *choirtest.Instance, line string) string {
	t.Helper()
	return in.Must(t, "exec", "--", "sh", "-c", line)
}

// TestGit clones, fetches and pushes with stock git over HTTP, through the real binary.
func TestGit(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	makeRepository(t, in, "app")
	a := access(t, in, "workspace/app", "--write")
	dir := t.TempDir()
	mustGit(t, dir, "clone", "-q", a.with(a.Token.Secret), "app")
	clone := filepath.Join(dir, "app")
	if b, err := os.ReadFile(filepath.Join(clone, "a.txt")); err != nil || string(b) != "one\n" {
		t.Fatalf("cloned %q: %v", b, err)
	}
	for _, part := range []struct {
		name string
		run  func(t *testing.T, in *choirtest.Instance, a gitAccess, clone string)
	}{
		{"a push is a publish that undo takes back", pushIsUndone},
		{"a push does not touch what was not committed", pushMeetsEdits},
		{"force and deletion", pushForced},
		{"two at once", pushTwice},
		{"names that the log has no room for", pushNames},
		{"large and many", pushLarge},
		{"other repositories", otherRepositories},
		{"shallow and partial clones", shallowClones},
		{"the history of the computer's own files", ownHistory},
		{"tokens", gitTokens},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, in, a, clone) })
	}
	logged := in.Must(t, "events", "--json") + in.Logs()
	if strings.Contains(logged, a.Token.Secret) {
		t.Error("a token is in the log")
	}
}

func pushIsUndone(t *testing.T, in *choirtest.Instance, _ gitAccess, clone string) {
	before := headOf(t, clone)
	head := commits(t, clone, "b.txt", "two\n")
	mustGit(t, clone, "push", "-q", "origin", "main")
	pushed := lastOf(t, in, "repository.pushed")
	if !strings.HasPrefix(pushed.Actor, "person:") || !strings.Contains(string(pushed.Data), head) || !strings.Contains(string(pushed.Data), "refs/heads/main") {
		t.Errorf("the log has %s by %s", pushed.Data, pushed.Actor)
	}
	if got := inComputer(t, in, "cd workspace/app && git rev-parse main && cat b.txt && git --no-optional-locks status --porcelain"); got != head+"\ntwo\n" {
		t.Errorf("after the push the computer has %q", got)
	}
	if out := in.Must(t, "undo"); !strings.Contains(out, "push") {
		t.Errorf("undo says %q", out)
	}
	if got := inComputer(t, in, "cd workspace/app && git rev-parse main && ls && git status --porcelain"); got != before+"\na.txt\n" {
		t.Errorf("after the undo the computer has %q", got)
	}
	mustGit(t, clone, "push", "-q", "origin", "main")
}

// pushMeetsEdits: if the branch's work tree has changes to files that a push would change too, the
// push is refused in git's words, and nothing is changed.
func pushMeetsEdits(t *testing.T, in *choirtest.Instance, _ gitAccess, clone string) {
	inComputer(t, in, "cd workspace/app && printf 'mine\n' > a.txt")
	commits(t, clone, "a.txt", "theirs\n")
	refusedGit(t, clone, "unstaged changes", "push", "origin", "main")
	if got := inComputer(t, in, "cd workspace/app && cat a.txt && git log --format=%s -1"); got != "mine\nchange b.txt\n" {
		t.Errorf("the computer has %q", got)
	}
	mustGit(t, clone, "push", "-q", "origin", "main:beside") // a branch that is not checked out
	inComputer(t, in, "cd workspace/app && git checkout -q a.txt")
	mustGit(t, clone, "push", "-q", "origin", "main")
	inComputer(t, in, "cd workspace/app && printf 'theirs\nfour\n' > a.txt && git commit -qam four")
	commits(t, clone, "c.txt", "c\n")
	refusedGit(t, clone, "rejected", "push", "origin", "main")
	mustGit(t, clone, "pull", "-q", "--rebase", "origin", "main")
	mustGit(t, clone, "push", "-q", "origin", "main")
	if got := inComputer(t, in, "cd workspace/app && git log --format=%s -2 && git status --porcelain"); got != "change c.txt\nfour\n" {
		t.Errorf("the computer has %q", got)
	}
}

// pushForced shows that undo brings back what a client overwrote by force, or deleted.
func pushForced(t *testing.T, in *choirtest.Instance, _ gitAccess, clone string) {
	before := headOf(t, clone)
	mustGit(t, clone, "reset", "-q", "--hard", "HEAD~1")
	commits(t, clone, "d.txt", "d\n")
	refusedGit(t, clone, "rejected", "push", "origin", "main")
	mustGit(t, clone, "push", "-q", "--force", "origin", "main")
	in.Must(t, "undo")
	if got := strings.TrimSpace(inComputer(t, in, "cd workspace/app && git rev-parse main")); got != before {
		t.Errorf("after the undo main is at %s, was at %s", got, before)
	}
	refusedGit(t, clone, "deletion of the current branch prohibited", "push", "origin", ":main")
	mustGit(t, clone, "push", "-q", "origin", ":beside")
	in.Must(t, "undo")
	if got := inComputer(t, in, "cd workspace/app && git branch --list beside"); !strings.Contains(got, "beside") {
		t.Errorf("after the undo there are the branches %q", got)
	}
	mustGit(t, clone, "fetch", "-q", "origin")
	mustGit(t, clone, "reset", "-q", "--hard", "origin/main")
}

// pushTwice shows that of two concurrent pushes both are accepted, or one is and the other is
// refused, and that nothing acknowledged is lost.
func pushTwice(t *testing.T, in *choirtest.Instance, a gitAccess, clone string) {
	type end struct {
		branch, head, out string
		err               error
	}
	ends := make(chan end, 4)
	var begin sync.WaitGroup
	begin.Add(4)
	for _, branch := range []string{"left", "right", "main", "main"} {
		dir := filepath.Join(t.TempDir(), "clone")
		mustGit(t, t.TempDir(), "clone", "-q", a.with(a.Token.Secret), dir)
		head := commits(t, dir, branch+".txt", dir)
		go func() {
			begin.Done()
			begin.Wait()
			out, err := gitIn(t, dir, "push", "origin", "HEAD:"+branch)
			ends <- end{branch, head, out, err}
		}()
	}
	taken := 0
	has := []string{}
	for range 4 {
		e := <-ends
		if e.err == nil {
			taken++
			has = append(has, e.branch+" "+e.head)
		} else if !strings.Contains(e.out, "changed in the computer meanwhile") && !strings.Contains(e.out, "rejected") && !strings.Contains(e.out, "failed to update ref") {
			t.Errorf("the push of %s was refused with\n%s", e.branch, e.out)
		}
	}
	if taken == 0 {
		t.Error("none of the pushes was taken")
	}
	got := inComputer(t, in, "cd workspace/app && git fsck --strict 2>&1 && git for-each-ref --format='%(refname:short) %(objectname)' refs/heads && git status --porcelain")
	for _, h := range has {
		if !strings.Contains(got, h+"\n") {
			t.Errorf("%s was acknowledged; the computer has\n%s", h, got)
		}
	}
	mustGit(t, clone, "pull", "-q", "origin", "main")
}

// pushNames shows that names that an event can't contain are refused before anything is stored, and
// that those for which an event has no room are counted in it.
func pushNames(t *testing.T, in *choirtest.Instance, _ gitAccess, clone string) {
	refs := func() string {
		return inComputer(t, in, "cd workspace/app && git for-each-ref --format='%(refname)' | sort | cut -c1-80 | uniq -c")
	}
	before := refs()
	part := strings.Repeat("n", 250)
	refusedGit(t, clone, "422", "push", "origin", "HEAD:refs/heads/\xff")
	refusedGit(t, clone, "422", "push", "origin", "HEAD:refs/tags/"+strings.Join([]string{part, part, part, part, part}, "/"))
	if got := refs(); got != before {
		t.Errorf("of refused pushes came\n%s\nwhere\n%s was", got, before)
	}
	escaped := strings.Repeat("&", 240) // each takes six bytes of an event
	push := []string{"push", "-q", "origin"}
	for n := range 60 {
		push = append(push, fmt.Sprintf("HEAD:refs/tags/%s/%s/%d", escaped, escaped, n))
	}
	mustGit(t, clone, push...)
	var pushed contract.RepositoryPushed
	if err := json.Unmarshal(lastOf(t, in, "repository.pushed").Data, &pushed); err != nil || len(pushed.Refs) == 0 || len(pushed.Refs)+pushed.More != 60 {
		t.Errorf("the log has %d refs and %d more, of 60: %v", len(pushed.Refs), pushed.More, err)
	}
	in.Must(t, "undo")
	if got := refs(); got != before {
		t.Errorf("after the undo there is\n%s\nwhere\n%s was", got, before)
	}
}

// stalls begins as many fetches as one account may have, and never ends them.
func stalls(t *testing.T, a gitAccess, secret string) {
	t.Helper()
	at, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	for range 12 {
		conn, err := net.Dial("tcp", at.Host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := fmt.Fprintf(conn, "POST %s/git-upload-pack HTTP/1.1\r\nHost: %s\r\nAuthorization: Basic %s\r\nContent-Length: 1000\r\n\r\n0",
			at.EscapedPath(), at.Host, base64.StdEncoding.EncodeToString([]byte("x:"+secret))); err != nil {
			t.Fatal(err)
		}
		go func() {
			for range 60 {
				select {
				case <-t.Context().Done():
					return
				case <-time.After(time.Second): // slower than git, and faster than the server's limit for silence
					_, _ = conn.Write([]byte("0"))
				}
			}
		}()
	}
}

// pushLarge pushes 50 MiB while a task publishes.
func pushLarge(t *testing.T, in *choirtest.Instance, _ gitAccess, clone string) {
	big := make([]byte, 50<<20)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < len(big); i += 8 {
		binary.LittleEndian.PutUint64(big[i:], r.Uint64())
	}
	head := commits(t, clone, "big.bin", string(big))
	done := make(chan choirtest.Result, 1)
	go func() {
		r, _ := in.Run(t.Context(), "prompt", "--wait", "write \"buy milk\" to workspace/list.txt")
		done <- r
	}()
	mustGit(t, clone, "push", "-q", "origin", "main")
	if r := <-done; r.Code != 0 {
		t.Errorf("the prompt beside: %+v", r)
	}
	if got := inComputer(t, in, "cd workspace/app && git rev-parse main && git cat-file -s main:big.bin && git status --porcelain"); got != head+"\n52428800\n" {
		t.Errorf("the computer has %q", got)
	}
}

// otherRepositories uses an empty repository, one without a work tree, one with spaces in its path,
// and one whose ids are SHA-256.
func otherRepositories(t *testing.T, in *choirtest.Instance, _ gitAccess, _ string) {
	inComputer(t, in, `git init -q -b main "workspace/an empty one" && git init -q --bare -b main workspace/bare.git && git init -q -b main --object-format=sha256 workspace/wide`)
	for name, format := range map[string]string{"workspace/an empty one": "sha1", "workspace/bare.git": "sha1", "workspace/wide": "sha256"} {
		a := access(t, in, name, "--write")
		dir := t.TempDir()
		mustGit(t, dir, "init", "-q", "-b", "main", "--object-format="+format)
		mustGit(t, dir, "remote", "add", "origin", a.with(a.Token.Secret))
		head := commits(t, dir, "x.txt", name)
		mustGit(t, dir, "push", "-q", "origin", "main")
		again := filepath.Join(t.TempDir(), "again")
		mustGit(t, t.TempDir(), "clone", "-q", a.with(a.Token.Secret), again)
		if got := headOf(t, again); got != head {
			t.Errorf("%s: pushed %s, cloned %s", name, head, got)
		}
	}
	inComputer(t, in, `mkdir -p workspace/folder workspace/app/sub`)
	for _, none := range []string{"none", "folder", "app/sub"} {
		if r, err := in.Run(t.Context(), "git", "url", "workspace/"+none); err != nil || r.Code != 1 || !strings.Contains(r.Stderr, "no such repository") {
			t.Errorf("of %s: %+v, %v", none, r, err)
		}
	}
}

func shallowClones(t *testing.T, in *choirtest.Instance, a gitAccess, _ string) {
	dir := t.TempDir()
	mustGit(t, dir, "clone", "-q", "--depth", "1", a.with(a.Token.Secret), "shallow")
	shallow := filepath.Join(dir, "shallow")
	if got := strings.TrimSpace(mustGit(t, shallow, "rev-list", "--count", "HEAD")); got != "1" {
		t.Errorf("a shallow clone has %s commits", got)
	}
	head := commits(t, shallow, "shallow.txt", "s\n")
	mustGit(t, shallow, "push", "-q", "origin", "HEAD:shallow")
	if got := strings.TrimSpace(inComputer(t, in, "cd workspace/app && git rev-parse shallow && git fsck --connectivity-only 2>&1 | grep -c missing || true")); got != head+"\n0" {
		t.Errorf("the computer has %q", got)
	}
	mustGit(t, dir, "clone", "-q", "--filter=blob:none", "--no-checkout", a.with(a.Token.Secret), "partial")
}

// ownHistory shows that the computer's own history can be read, without the keeper's own refs.
func ownHistory(t *testing.T, in *choirtest.Instance, _ gitAccess, _ string) {
	a := access(t, in)
	dir := t.TempDir()
	mustGit(t, dir, "clone", "-q", a.with(a.Token.Secret), "all")
	all := filepath.Join(dir, "all")
	if _, err := os.Stat(filepath.Join(all, "choiros")); err != nil {
		t.Error(err)
	}
	if got := mustGit(t, all, "ls-remote"); strings.Contains(got, "refs/choir") {
		t.Errorf("what is the keeper's is shown:\n%s", got)
	}
	commits(t, all, "x.txt", "x")
	refusedGit(t, all, "this token is for reading", "push", a.with(a.Token.Secret), "HEAD:main")
}

// gitTokens shows that git prints why a token does not suffice.
func gitTokens(t *testing.T, in *choirtest.Instance, a gitAccess, clone string) {
	makeRepository(t, in, "other")
	reads, other := access(t, in, "workspace/app"), access(t, in, "workspace/other", "--write")
	for _, refused := range []struct{ secret, words string }{
		{reads.Token.Secret, "403"}, {other.Token.Secret, "not found"}, {"choir_git_" + strings.Repeat("a", 43), "Authentication failed"},
	} {
		refusedGit(t, clone, refused.words, "push", a.with(refused.secret), "HEAD:never")
	}
	refusedGit(t, clone, "this token is for reading", "push", a.with(reads.Token.Secret), "HEAD:never")
	mustGit(t, clone, "fetch", "-q", a.with(reads.Token.Secret), "main")
	mustGit(t, clone, "push", "-q", a.with(in.Token), "HEAD:by-api-token")
	in.Must(t, "tokens", "revoke", reads.Token.ID)
	refusedGit(t, clone, "not valid", "fetch", a.with(reads.Token.Secret), "main")

	var made view.Invited
	in.JSON(t, &made, "accounts", "invite", "B")
	b := *in
	b.Token = signIn(t, made.URL).token(t)
	var invitation view.Invitation
	in.JSON(t, &invitation, "members", "invite", "--role", "viewer")
	b.Must(t, "join", invitation.Token)
	viewer := access(t, &b, "workspace/app")
	mustGit(t, clone, "fetch", "-q", a.with(viewer.Token.Secret), "main")
	if r, err := b.Run(t.Context(), "git", "url", "workspace/app", "--write"); err != nil || r.Code == 0 {
		t.Errorf("a viewer makes a token that pushes: %+v, %v", r, err)
	}
	refusedGit(t, clone, "403", "push", a.with(b.Token), "HEAD:never")
	stalls(t, a, viewer.Token.Secret)
	mustGit(t, clone, "fetch", "-q", "origin", "main") // a fetch with another account's token
	b.Must(t, "tokens", "revoke", viewer.Token.ID)
	viewer = access(t, &b, "workspace/app") // the requests with the other one have ended
	mustGit(t, clone, "fetch", "-q", a.with(viewer.Token.Secret), "main")
}

func headOf(t *testing.T, dir string) string {
	t.Helper()
	return strings.TrimSpace(mustGit(t, dir, "rev-parse", "HEAD"))
}

// loggedEvent is a line of choir events.
type loggedEvent struct {
	Type  string
	Actor string
	Data  json.RawMessage
}

// lastOf returns the newest event of a type.
func lastOf(t *testing.T, in *choirtest.Instance, of string) loggedEvent {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(in.Must(t, "events", "--type", of, "--json")), "\n")
	var e loggedEvent
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestGitOfHostileRepositories shows that nothing that somebody wrote into a repository is run,
// obeyed or revealed when git is served from it or pushed to it.
func TestGitOfHostileRepositories(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	makeRepository(t, in, "app")
	inComputer(t, in, `cd workspace/app && echo '*.txt filter=evil diff=evil merge=evil' > .gitattributes && git add . && git commit -qm attributes
evil='sh -c "echo ran > /computer/workspace/ran; echo ran > /computer/workspace/app/ran"'
for h in pre-receive update post-receive post-update reference-transaction push-to-checkout proc-receive post-checkout post-index-change; do
	printf '#!/bin/sh\necho ran > /computer/workspace/ran; echo ran > /computer/workspace/app/ran\n' > .git/hooks/$h; chmod +x .git/hooks/$h; done
mkdir -p .git/own && cp .git/hooks/* .git/own/
git config filter.evil.smudge "$evil"; git config filter.evil.clean "$evil"; git config filter.evil.process "$evil"
git config core.fsmonitor "$evil"; git config core.hooksPath .git/own; git config core.alternateRefsCommand "$evil"; git config core.sshCommand "$evil"
git config uploadpack.packObjectsHook "$evil"; git config core.pager "$evil"; git config gpg.program "$evil"; git config core.editor "$evil"
git config receive.procReceiveRefs refs/heads; git config receive.denyCurrentBranch ignore; git config receive.shallowUpdate true; git config transfer.fsckObjects false
printf '[include]\n\tpath = /etc/passwd\n\tpath = /computer/workspace/none\n[core]\n\tworktree = /computer\n' >> .git/config
cp .git/config /tmp/config && cp .git/config config.kept`)
	a := access(t, in, "workspace/app", "--write")
	clone := filepath.Join(t.TempDir(), "clone")
	mustGit(t, t.TempDir(), "clone", "-q", a.with(a.Token.Secret), clone)
	if err := os.Remove(filepath.Join(clone, ".gitattributes")); err != nil {
		t.Fatal(err)
	}
	commits(t, clone, "b.txt", "b\n")
	mustGit(t, clone, "push", "-q", "origin", "main")
	if got := inComputer(t, in, "cat workspace/app/b.txt; ls workspace; ls workspace/app; cmp workspace/app/.git/config workspace/app/config.kept; ls workspace/app/.git"); strings.Contains(got, "ran\n") ||
		!strings.HasPrefix(got, "b\n") || strings.Contains(got, "before-push") || strings.Contains(got, "differ") {
		t.Errorf("the computer has\n%s", got)
	}

	inComputer(t, in, `cd workspace && for r in borrows elsewhere linked links commons tables; do git init -q -b main $r; done
echo /computer/workspace/app/.git/objects > borrows/.git/objects/info/alternates
mv elsewhere/.git moved && echo "gitdir: ../moved" > elsewhere/.git
rm -rf linked/.git && ln -s ../app/.git linked/.git
rm -rf links/.git/refs && ln -s ../../app/.git/refs links/.git/refs
echo ../../app/.git > commons/.git/commondir && rm -rf commons/.git/objects && ln -s ../../app/.git/objects commons/.git/objects
git -C tables config core.repositoryformatversion 1; git -C tables config extensions.refstorage reftable; rm -rf tables/.git/refs/heads; echo none > tables/.git/refs/heads; echo 'ref: refs/heads/.invalid' > tables/.git/HEAD
for r in pipe packpipe objectpipe device packed; do git init -q -b main $r; git -C $r -c user.name=a -c user.email=a@b commit -q --allow-empty -m a; done
mkfifo pipe/.git/refs/heads/x packpipe/.git/objects/pack/pack-x.pack packpipe/.git/objects/pack/pack-x.idx
o=objectpipe/.git/objects/$(git -C objectpipe rev-parse main | sed 's,^..,&/,'); rm -f $o && mkfifo $o
ln -s /dev/zero device/.git/refs/heads/x; ln -s /dev/zero packed/.git/packed-refs
ln -s app alias; ln -s / root; mkdir plain; mkfifo plain/HEAD plain/config; mkdir plain/objects plain/refs`)
	for name, words := range map[string]string{
		"borrows": "borrows objects", "elsewhere": "lies elsewhere", "linked": "lies elsewhere", "links": "lies elsewhere", "commons": "lies elsewhere",
		"plain": "no such repository", "tables": "not known here",
		"pipe": "other than files", "packpipe": "other than files", "objectpipe": "other than files", "device": "other than files", "packed": "other than files",
	} {
		if r, err := in.Run(t.Context(), "git", "url", "workspace/"+name); err != nil || r.Code == 0 || !strings.Contains(r.Stderr, words) {
			t.Errorf("a token for %s: %+v, %v", name, r, err)
		}
		there := gitAccess{URL: strings.Replace(a.URL, "workspace/app", "workspace/"+name, 1)}
		refusedGit(t, t.TempDir(), words, "clone", there.with(in.Token))
		refusedGit(t, clone, words, "push", there.with(in.Token), "HEAD:refs/heads/x")
	}
	for _, none := range []string{"workspace/alias", "workspace/root/etc", "workspace/app/.git", ".git", "../x", "workspace/app/.git/objects"} {
		if r, err := in.Run(t.Context(), "git", "url", none); err != nil || r.Code != 1 {
			t.Errorf("%s is a repository: %+v, %v", none, r, err)
		}
	}

	// Damaged or hostile packs are refused before anything is published.
	before := inComputer(t, in, "cd workspace/app/.git && find refs objects -type f | sort && cat refs/heads/*")
	mustGit(t, clone, "config", "fsck.skipList", "/dev/null")
	tree := strings.TrimSpace(mustGit(t, clone, "rev-parse", "HEAD^{tree}"))
	evil := filepath.Join(t.TempDir(), "commit")
	if err := os.WriteFile(evil, []byte("tree "+tree+"\nauthor a <a> 99999999999999999999 +0000\ncommitter a\n\nx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := strings.TrimSpace(mustGit(t, clone, "hash-object", "-t", "commit", "-w", "--literally", evil))
	mustGit(t, clone, "update-ref", "refs/heads/bad", bad)
	refusedGit(t, clone, "fsck", "push", "origin", "bad")
	if after := inComputer(t, in, "cd workspace/app/.git && find refs objects -type f | sort && cat refs/heads/*"); after != before {
		t.Errorf("a refused push left\n%s\nwhere\n%s was", after, before)
	}
}

// TestAPushThatIsCutOff shows that if the computer dies during a push, or its client disconnects,
// everything of it is there or nothing.
func TestAPushThatIsCutOff(t *testing.T) {
	t.Parallel()
	data := filepath.Join(choirtest.Scratch(t), "data")
	in := choirtest.Start(t, choirtest.Options{Data: data})
	makeRepository(t, in, "app")
	a := access(t, in, "workspace/app", "--write")
	clone := filepath.Join(t.TempDir(), "clone")
	mustGit(t, t.TempDir(), "clone", "-q", a.with(a.Token.Secret), clone)
	big := make([]byte, 4<<20)
	for round, after := range []time.Duration{20 * time.Millisecond, 90 * time.Millisecond, 150 * time.Millisecond, 220 * time.Millisecond, 300 * time.Millisecond} {
		before := headOf(t, clone)
		big[round] = byte(round + 1)
		head := commits(t, clone, "big.bin", string(big))
		ended := make(chan error, 1)
		go func() {
			_, err := gitIn(t, clone, "push", a.with(a.Token.Secret), "HEAD:main")
			ended <- err
		}()
		time.Sleep(after) // any moment will do, because what is checked holds at each
		in.Kill()
		err := <-ended
		in = choirtest.Start(t, choirtest.Options{Data: data})
		a = access(t, in, "workspace/app", "--write") // at the new address
		got := strings.TrimSpace(inComputer(t, in, "cd workspace/app && git fsck --strict >/dev/null && git status --porcelain && git rev-parse main"))
		t.Logf("killed %s after it began: %v, main is %s of %s, %s", after, err, got, before, head)
		if got != head && (got != before || err == nil) {
			t.Errorf("the push ended with %v; main is %q, was %s, pushed was %s", err, got, before, head)
		}
		mustGit(t, clone, "push", "-q", a.with(a.Token.Secret), "HEAD:main")
	}
}
