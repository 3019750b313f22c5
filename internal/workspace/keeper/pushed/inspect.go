package pushed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/workspace/keeper/gitstore"
	"choir.dev/choiros/internal/workspace/keeper/names"
	"choir.dev/choiros/internal/workspace/keeper/nested"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// inspection checks everything that a push brings, before any of it is written.
type inspection struct {
	*Receiver
	*spool
	files     int                 // how many the live tree has
	outside   map[string]string   // what it names and does not bring: id to kind
	links     map[string]struct{} // blobs that are targets of links
	manifests map[string]struct{} // manifests of large files
	parents   []string            // commits of the history that it builds on
	commits   int
}

// all checks each object by itself, then the objects that they name.
func (l *inspection) all(ctx context.Context, base, tip string) error {
	l.outside, l.links, l.manifests = map[string]string{}, map[string]struct{}{}, map[string]struct{}{}
	if l.at[tip].kind != commitKind {
		return fault.New("", fault.Invalid, "", errors.New("what is pushed is not in it"))
	}
	for _, id := range l.order {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		switch l.at[id].kind {
		case commitKind:
			err = l.commit(id)
		case treeKind:
			err = l.tree(id)
		}
		if err != nil {
			return err
		}
	}
	if err := errors.Join(l.there(ctx), l.linked(ctx)); err != nil {
		return err
	}
	if err := l.large(ctx, base); err != nil {
		return err
	}
	return l.onwards(ctx, base)
}

// commitHead is how a commit begins. Git reads no history of which one commit begins
// otherwise, and some of its programs none with a person or a date that is none.
var commitHead = sync.OnceValue(func() *regexp.Regexp {
	const person = ` [^<>\n]* <[^<>\n]*> (0|[1-9][0-9]{0,17}) [+-][0-9]{4}`
	return regexp.MustCompile(`^tree [0-9a-f]{40}\n(parent [0-9a-f]{40}\n)*author` + person + `\ncommitter` + person + `(\n|$)`)
})

// commit checks what a commit names, and that it says nothing that only checkpoints say.
func (l *inspection) commit(id string) error {
	content, err := l.content(id)
	if err != nil {
		return err
	}
	l.commits++
	tree, parents := gitstore.CommitNames(content)
	head, message, _ := bytes.Cut(content, []byte("\n\n"))
	if !commitHead().Match(head) || bytes.IndexByte(content, 0) >= 0 {
		return fault.New("", fault.Invalid, "", fmt.Errorf("commit %s is none", id))
	}
	for line := range bytes.Lines(message) {
		if bytes.HasPrefix(line, []byte("Choir-")) {
			return fault.New("", fault.Denied, "Give it another message (git commit --amend, git rebase): that is how checkpoints begin a line.",
				fmt.Errorf("a line of the message of commit %.12s begins with %q", id, "Choir-"))
		}
	}
	for _, p := range parents {
		if _, known := l.outside[p]; !known && !l.brought(p) {
			l.parents = append(l.parents, p)
		}
		if err := l.want(p, commitKind); err != nil {
			return err
		}
	}
	return l.want(tree, treeKind)
}

func (l *inspection) brought(id string) bool { _, ok := l.at[id]; return ok }

// want records that an object is named as one of a kind.
func (l *inspection) want(id, kind string) error {
	got, brought := l.at[id]
	if !brought {
		was, known := l.outside[id]
		if got.kind = kind; known {
			got.kind = was
		} else if len(l.outside) >= mostObjects+2*l.limits.Files {
			return fault.New("", fault.Exhausted, "Push fewer commits at once.", fmt.Errorf("the push names more than %d files and folders that it does not bring", len(l.outside)))
		}
		l.outside[id] = kind
	}
	if got.kind != kind || len(id) != 40 || !wire.IsHex(id) {
		return fault.New("", fault.Invalid, "", fmt.Errorf("%.40q is no %s", id, kind))
	}
	return nil
}

func (l *inspection) tree(id string) error {
	content, err := l.content(id)
	if err != nil {
		return err
	}
	list, err := entries(content)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := l.want(e.ID, e.kind()); err != nil {
			return err
		}
		if e.Mode == string(wire.ModeSymlink) {
			l.links[e.ID] = struct{}{}
		}
		if e.chunked {
			l.manifests[e.ID] = struct{}{}
		}
	}
	return nil
}

// there ensures that objects that are named and were not brought are in the store.
func (l *inspection) there(ctx context.Context) error {
	if len(l.outside) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(l.outside))
	out, err := l.store.Git(ctx, strings.NewReader(strings.Join(ids, "\n")+"\n"), "cat-file", "--batch-check=%(objectname) %(objecttype)")
	if err != nil {
		return err
	}
	there := map[string]string{}
	for line := range strings.Lines(string(out)) {
		id, kind, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		there[id] = kind
	}
	for _, id := range ids {
		if there[id] != l.outside[id] {
			return fault.New("", fault.Invalid, "Push from a clone that is whole.", fmt.Errorf("the %s %s is missing", said(l.outside[id]), id))
		}
	}
	return nil
}

// linked ensures that the target of each symbolic link is a possible path.
func (l *inspection) linked(ctx context.Context) error {
	for id := range l.links {
		var target []byte
		var err error
		if o, brought := l.at[id]; brought && o.size < wire.MaxPath {
			target, err = l.content(id)
		} else if !brought {
			target, err = l.store.Blob(ctx, id, wire.MaxPath-1)
		}
		if err != nil && !fault.Is(err, fault.Exhausted) {
			return err
		}
		if len(target) == 0 || bytes.IndexByte(target, 0) >= 0 {
			return fault.New("", fault.Denied, "", fmt.Errorf("the link %s leads to no path", id))
		}
	}
	return nil
}

// large refuses manifests of large files that the history does not have: a tree has, in
// place of such a file, the list of its parts, which only the keeper writes.
func (l *inspection) large(ctx context.Context, base string) error {
	if len(l.manifests) == 0 {
		return nil
	}
	err := l.alone(func() error {
		for _, t := range l.scanner.Index.All() {
			if t.Chunked {
				delete(l.manifests, t.ID)
			}
		}
		return nil
	})
	if err != nil || len(l.manifests) == 0 {
		return err
	}
	had, err := l.store.ManifestsOf(ctx, &wire.CollectReply{}, base)
	if err != nil {
		return err
	}
	for id := range l.manifests {
		if _, ok := had[id]; !ok {
			return fault.New("", fault.Denied, "Large files are brought in with choir files put; in a clone they can be moved and removed.",
				fmt.Errorf("%s is the manifest of no large file that the computer has", id))
		}
	}
	return nil
}

// onwards ensures that the push builds on the checkpoint that it names, and on nothing
// outside the history of that checkpoint.
func (l *inspection) onwards(ctx context.Context, base string) error {
	if !slices.Contains(l.parents, base) {
		return behind()
	}
	if len(l.parents) == 1 {
		return nil
	}
	beyond, err := l.store.Git(ctx, strings.NewReader(strings.Join(l.parents, "\n")+"\n^"+base+"\n"), "rev-list", "--max-count=1", "--stdin")
	if err == nil && len(beyond) > 0 {
		err = behind()
	}
	return err
}

func behind() error {
	return fault.New("", fault.Conflict, "Fetch, merge or rebase, then push again.", errors.New("the push does not go on from a checkpoint that was the newest a while ago"))
}

// differs checks what the push changes of its base: that the paths are permitted, and that
// there are no more files than a computer may have.
func (l *inspection) differs(ctx context.Context, base, tip string) error {
	content, err := l.content(tip)
	if err != nil {
		return err
	}
	was, err := l.store.NameOf(ctx, base+"^{tree}")
	if err != nil {
		return err
	}
	tree, _ := gitstore.CommitNames(content)
	changed, files := 0, l.files
	beyond := func(id string) ([]byte, bool, error) {
		if !l.brought(id) {
			return nil, false, nil
		}
		b, err := l.content(id)
		return b, true, err
	}
	return l.store.DifferBeyond(ctx, was, tree, beyond, func(name string, from, to gitstore.TreeItem) error {
		if from.Mode == "" {
			files++
		} else if to.Mode == "" {
			files--
		}
		if changed++; changed > 2*l.limits.Files || files > l.limits.Files {
			return fault.New("", fault.Exhausted, "Push fewer, or raise storage.files.", fmt.Errorf("with the push there would be more than %d files", l.limits.Files))
		}
		p, kind := names.UnescapePath(name)
		if kind == names.PathEmpty && p == "" {
			return nil // of all of it
		}
		if err := wire.CheckPath(p, false); err != nil {
			return fault.New("", fault.Denied, "Push without it.", fmt.Errorf("%s %w", wire.Path(wire.Short(p)).Shown(), err))
		}
		if git, in := nested.In(p); in {
			return fault.New("", fault.Denied, "Push to that repository: choir git url PATH --write.",
				fmt.Errorf("%s is of a repository of its own, %s", wire.Path(wire.Short(p)).Shown(), wire.Path(wire.ParentDir(git)).Shown()))
		}
		return nil
	})
}
