package e2e_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"choir.dev/choiros/test/choirtest"
)

type unkept struct {
	Files   int `json:"files"`
	Ignored int `json:"ignored"`
	Paths   []struct {
		Path    string `json:"path"`
		Reason  string `json:"reason"`
		Ignored bool   `json:"ignored"`
	} `json:"paths"`
}

// lines returns the paths as they are printed.
func (u unkept) lines() []string {
	var out []string
	for _, p := range u.Paths {
		out = append(out, p.Path+" "+p.Reason)
	}
	slices.Sort(out)
	return out
}

// TestWhatIsNotProtectedIsSaid shows that files that no checkpoint contains are named by the
// command that left them, by each listing, and by the checkpoint and the restore that do not
// contain them.
func TestWhatIsNotProtectedIsSaid(t *testing.T) {
	t.Parallel()
	in := choirtest.Start(t, choirtest.Options{})
	dir := filepath.Join(t.TempDir(), "project")
	for name, content := range map[string]string{".gitignore": "/deps/\n*.key\n/none/\n", "a.txt": "a\n", "deps/x/lib": "lib\n", "sub/my.key": "k\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "none"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "sub", "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	same := func(what string, got, want []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s says\n %s\nwant\n %s", what, strings.Join(got, "\n "), strings.Join(want, "\n "))
		}
	}
	var added struct {
		Skipped int    `json:"skipped"`
		Unkept  unkept `json:"unkept"`
	}
	in.JSON(t, &added, "add", dir)
	same("add", added.Unkept.lines(), []string{
		"workspace/project/deps is ignored by workspace/project/.gitignore",
		"workspace/project/pipe is a fifo, and was not brought in",
		"workspace/project/sub/my.key is ignored by workspace/project/.gitignore",
		"workspace/project/sub/s is a socket, and was not brought in",
	})
	if added.Skipped != 2 || added.Unkept.Files != 2 || added.Unkept.Ignored != 2 {
		t.Errorf("add counts %+v", added)
	}
	said := in.Must(t, "add", dir, "--name", "again")
	for _, want := range []string{"workspace/again/deps: is ignored by workspace/again/.gitignore", "workspace/again/pipe: is a fifo"} {
		if !strings.Contains(said, want) {
			t.Errorf("add does not say %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, "workspace/project") {
		t.Errorf("add tells of what it did not bring:\n%s", said)
	}

	var files []struct {
		ID      string `json:"id"`
		Unkept  string `json:"unkept"`
		Beneath int    `json:"unkept_beneath"`
	}
	in.JSON(t, &files, "files", "ls", "workspace/project")
	marks := map[string]string{}
	beneath := map[string]int{}
	for _, f := range files {
		marks[f.ID], beneath[f.ID] = f.Unkept, f.Beneath
	}
	if marks["workspace/project/deps"] != "is ignored by workspace/project/.gitignore" || marks["workspace/project/a.txt"] != "" ||
		marks["workspace/project/none"] != "" || beneath["workspace/project/sub"] != 1 || len(files) != 5 {
		t.Errorf("files says %+v", files)
	}
	if said := in.Must(t, "files", "ls", "workspace/project"); !strings.Contains(said, "not kept: it is ignored by workspace/project/.gitignore") || !strings.Contains(said, "1 in it not kept") {
		t.Errorf("files ls says\n%s", said)
	}

	put, err := in.RunInput(t.Context(), []byte("k"), "files", "put", "-", "workspace/project/new.key")
	if err != nil || put.Code != 0 || !strings.Contains(string(put.Stdout), "new.key: is ignored by workspace/project/.gitignore") {
		t.Errorf("files put: %v %+v", err, put)
	}

	// A command names what it left, and nothing that was there before.
	ranBy := func(argv ...string) []string {
		t.Helper()
		var exit struct {
			Unkept unkept `json:"unkept"`
		}
		if out := in.Must(t, append([]string{"exec", "--json", "--"}, argv...)...); json.Unmarshal([]byte(out), &exit) != nil {
			t.Fatalf("exec printed %s", out)
		}
		return exit.Unkept.lines()
	}
	same("exec", ranBy("sh", "-c", "mkfifo workspace/left; echo x > workspace/project/b.key; echo y > workspace/kept"), []string{"workspace/left is a fifo", "workspace/project/b.key is ignored by workspace/project/.gitignore"})
	same("another command", ranBy("true"), nil)
	ran, err := in.Run(t.Context(), "exec", "--", "mkfifo", "workspace/other")
	if err != nil || !strings.Contains(string(ran.Stderr), "workspace/other: is a fifo") || strings.Contains(string(ran.Stderr), "workspace/left") {
		t.Errorf("exec: %v %+v", err, ran)
	}

	var made struct {
		ID     string `json:"id"`
		Unkept unkept `json:"unkept"`
	}
	in.JSON(t, &made, "checkpoint")
	if made.Unkept.Files != 2 || made.Unkept.Ignored < 5 {
		t.Errorf("checkpoint says %+v", made.Unkept)
	}
	var shown struct {
		ID      string   `json:"id"`
		Skipped []string `json:"skipped"`
		Left    int      `json:"left"`
		Ignored []string `json:"ignored"`
		Outside int      `json:"outside"`
		Author  string   `json:"author"`
		Actor   string   `json:"actor"`
		User    string   `json:"user"`
	}
	in.JSON(t, &shown, "checkpoints", "show", made.ID)
	if shown.Author != "person" || shown.User == "" || shown.Actor != "person:"+shown.User {
		t.Errorf("the checkpoint is by %q, %q for %q", shown.Author, shown.Actor, shown.User)
	}
	if said := in.Must(t, "events", "--text", "--type", "checkpoint.created"); !strings.Contains(said, "  person:Owner  checkpoint.created  checkpoint/"+made.ID+"\n") {
		t.Errorf("events says\n%s", said)
	}
	if shown.ID != made.ID || shown.Left != 2 || !slices.Equal(shown.Skipped, []string{"workspace/left: is a fifo", "workspace/other: is a fifo"}) ||
		!slices.Contains(shown.Ignored, "workspace/project/deps") || shown.Outside != made.Unkept.Ignored {
		t.Errorf("the checkpoint says %+v", shown)
	}
	if said := in.Must(t, "checkpoints"); !strings.Contains(said, "2 files not in it") || !strings.Contains(said, "person:Owner") {
		t.Errorf("checkpoints says\n%s", said)
	}
	if said := in.Must(t, "checkpoints", "show", made.ID[:12]); !strings.Contains(said, "workspace/left: is a fifo") || !strings.Contains(said, "workspace/project/deps: ignored by .gitignore") {
		t.Errorf("checkpoints show says\n%s", said)
	}

	// A restore names what it can't change.
	var dry, back struct {
		Unkept unkept `json:"unkept"`
	}
	in.JSON(t, &dry, "restore", made.ID, "--dry-run")
	in.JSON(t, &back, "restore", made.ID)
	for what, u := range map[string]unkept{"dry run": dry.Unkept, "restore": back.Unkept} {
		if l := u.lines(); u.Files != 2 || !slices.Contains(l, "workspace/left is a fifo") || !slices.Contains(l, "workspace/project/sub/my.key is ignored by workspace/project/.gitignore") {
			t.Errorf("the %s says %v", what, l)
		}
	}
	if said := in.Must(t, "restore", made.ID, "--dry-run"); !strings.Contains(said, "workspace/left: in no checkpoint, is a fifo") {
		t.Errorf("the dry run says\n%s", said)
	}
}
