package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/standing"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/view"
)

// Reviews is choir reviews.
func Reviews() cli.Verb {
	var all bool
	var limit int
	return cli.Verb{
		Use: "reviews", Short: "List what runs made that waits until you have looked at it", Args: cli.Exactly(0), JSON: []view.Review{},
		Examples: []string{"choir reviews", "choir reviews --all"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, _ []string) error {
			got, err := cli.Every(ctx, limit, func(r view.Review) uint64 { return r.Sequence }, func(ctx context.Context, before uint64, n int) ([]view.Review, bool, error) {
				return c.Reviews(ctx, all, before, n)
			})
			if err != nil {
				return err
			}
			return t.Show(cli.List(got), func(w io.Writer) {
				in := deciders(ctx, c, got...)
				for _, r := range got {
					printReview(w, r, in)
					terminal.Row(w, "")
				}
			})
		},
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&all, "all", false, "answered ones too")
			f.IntVar(&limit, "limit", 50, "how many, newest first; 0: all")
		},
	}
}

// deciders are the names of a computer's people, if one of them has decided about a review. When they can't be had
// their accounts are shown.
func deciders(ctx context.Context, c *client.Client, reviews ...view.Review) standing.People {
	if !slices.ContainsFunc(reviews, func(r view.Review) bool { return r.By != "" }) {
		return nil
	}
	in, err := standing.PeopleOf(ctx, c)
	if err != nil {
		return nil
	}
	return in
}

func printReview(w io.Writer, r view.Review, in standing.People) {
	terminal.Row(w, "run", r.Run, terminal.OneLine(r.Prompt, 80))
	terminal.Row(w, "task", r.Task, terminal.OneLine(r.Goal, 80))
	terminal.Row(w, "changes", fmt.Sprintf("%d paths", r.Paths))
	if r.Verification != nil {
		terminal.Row(w, "verified", standing.Mark(r.Verification.Status)+standing.Suffix(r.Verification.Reason))
	}
	if r.Reason != "" {
		terminal.Row(w, "once more", terminal.OneLine(r.Reason, 500))
	}
	switch {
	case !r.Answered.IsZero():
		terminal.Row(w, "decided", standing.Decided(r.Decision, r.Only, in.Whose(contract.ActorName(r.By), "")))
	default:
		terminal.Row(w, "waits since", terminal.Time(r.Asked))
	}
	for _, c := range r.Comments {
		terminal.Row(w, "comment", terminal.OneLine(commented(c), 500))
	}
}

func commented(c contract.ReviewComment) string {
	at := c.Path
	if c.Line > 0 {
		at += ":" + strconv.Itoa(c.Line)
	}
	if at != "" {
		at += " "
	}
	return at + c.Text
}

// Review is choir review.
func Review() cli.Verb {
	var a answer
	return cli.Verb{
		Use: "review RUN", Short: "Look at what a run made before it is published, and publish it, a part of it or none, or send it back with comments", Args: cli.Exactly(1), JSON: view.Review{},
		Examples: []string{"choir review RUN", "choir review RUN --publish", "choir review RUN --take src/app.go --hunk 0f1e2d3c4b5a6978",
			"choir review RUN --revise --comment 'src/app.go:12=say what it returns'", "choir review RUN --discard --comment '=not needed any more'"},
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			if err := a.check(); err != nil {
				return cli.Usage(err)
			}
			task, err := a.taskOf(ctx, c, args[0])
			if err != nil {
				return err
			}
			r, err := c.Review(ctx, args[0], task)
			if err != nil {
				return err
			}
			decision := a.decision()
			if decision == "" {
				return t.Show(r, func(w io.Writer) { printReview(w, r, deciders(ctx, c, r)); printFiles(w, r) })
			}
			only, err := a.only(r)
			if err != nil {
				return err
			}
			comments, err := a.comments(r)
			if err != nil {
				return cli.Usage(err)
			}
			_, err = c.Looked(ctx, r.Run, r.Task, view.Looked{Attempt: r.Attempt, Review: r.Review, Work: r.Work, Decision: decision, Only: only, Comments: comments})
			if err != nil {
				return err
			}
			r.Decision, r.Only, r.Comments = decision, only, comments
			return t.Show(r, func(w io.Writer) {
				terminal.Row(w, string(decision), fmt.Sprintf("what task %s made; the run goes on: choir wait %s", r.Task, r.Run))
			})
		},
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&a.task, "task", "", "the `TASK` that made it, where several wait")
			f.BoolVar(&a.publish, "publish", false, "publish all of it")
			f.StringArrayVar(&a.take, "take", nil, "publish what it changes at this `PATH` and beneath; may be repeated")
			f.StringArrayVar(&a.hunks, "hunk", nil, "publish this `HUNK`; may be repeated")
			f.BoolVar(&a.revise, "revise", false, "send it back to its loop with the comments")
			f.BoolVar(&a.discard, "discard", false, "publish none of it")
			f.StringArrayVar(&a.said, "comment", nil, "a `COMMENT`: PATH:LINE=WORDS, PATH=WORDS, or =WORDS about all of it; may be repeated")
		},
	}
}

// answer is what the flags of choir review say.
type answer struct {
	task                     string
	publish, revise, discard bool
	take, hunks, said        []string
}

func (a answer) decision() contract.ReviewDecision {
	switch {
	case a.revise:
		return contract.ReviewRevise
	case a.discard:
		return contract.ReviewDiscard
	case a.publish, len(a.take)+len(a.hunks) > 0:
		return contract.ReviewPublish
	}
	return ""
}

func (a answer) check() error {
	n := 0
	for _, is := range []bool{a.publish, a.revise, a.discard, len(a.take)+len(a.hunks) > 0} {
		if is {
			n++
		}
	}
	switch {
	case n > 1:
		return errors.New("give one of --publish, --take and --hunk, --revise, --discard")
	case a.revise && len(a.said) == 0:
		return errors.New("--revise needs a --comment, which its loop is told")
	case n == 0 && len(a.said) > 0:
		return errors.New("--comment goes with --publish, --take, --hunk, --revise or --discard")
	}
	return nil
}

// taskOf is the task whose work is looked at: the one that is named, or the only one that waits.
func (a answer) taskOf(ctx context.Context, c *client.Client, run string) (string, error) {
	if a.task != "" {
		return a.task, nil
	}
	r, err := c.Run(ctx, run)
	if err != nil {
		return "", err
	}
	switch len(r.Reviews) {
	case 0:
		return "", fault.New("review", fault.NotFound, "List what waits with: choir reviews", errors.New("nothing of this run waits until somebody has looked at it"))
	case 1:
		return r.Reviews[0].Task, nil
	}
	var tasks []string
	for _, l := range r.Reviews {
		tasks = append(tasks, l.Task)
	}
	return "", fault.New("review", fault.Invalid, "Name one with --task.", fmt.Errorf("the work of %d tasks waits: %s", len(tasks), strings.Join(tasks, ", ")))
}

// only is what is taken of the work as it is shown.
func (a answer) only(r view.Review) ([]contract.Choice, error) {
	var out []contract.Choice
	for _, p := range a.take {
		out = append(out, contract.Choice{Path: p})
	}
	for _, id := range a.hunks {
		at := slices.IndexFunc(r.Files, func(f view.ReviewFile) bool {
			return slices.ContainsFunc(f.Hunks, func(h view.Hunk) bool { return h.ID == id })
		})
		if at < 0 {
			return nil, fault.New("review", fault.NotFound, "Look again: choir review "+r.Run, fmt.Errorf("the work has no hunk %q", terminal.OneLine(id, 60)))
		}
		path := r.Files[at].Path
		if i := slices.IndexFunc(out, func(c contract.Choice) bool { return c.Path == path }); i >= 0 {
			out[i].Hunks = append(out[i].Hunks, id)
		} else {
			out = append(out, contract.Choice{Path: path, Hunks: []string{id}})
		}
	}
	return out, nil
}

// comments reads the comments, and adds the line that each is about as it was shown.
func (a answer) comments(r view.Review) ([]contract.ReviewComment, error) {
	var out []contract.ReviewComment
	for _, s := range a.said {
		at, text, ok := strings.Cut(s, "=")
		if !ok || strings.TrimSpace(text) == "" {
			return nil, fmt.Errorf("--comment %q is not PATH:LINE=WORDS, PATH=WORDS or =WORDS", s)
		}
		c := contract.ReviewComment{Path: at, Text: text}
		if i := strings.LastIndexByte(at, ':'); i >= 0 {
			line, err := strconv.Atoi(at[i+1:])
			if err != nil || line < 1 {
				return nil, fmt.Errorf("--comment %q names no line: lines are numbers from 1", s)
			}
			c.Path, c.Line = at[:i], line
			c.Quote = lineOf(r, c.Path, line)
		}
		out = append(out, c)
	}
	return out, nil
}

// lineOf is a line of a changed file as the review shows it; "" if it does not.
func lineOf(r view.Review, path string, line int) string {
	for _, f := range r.Files {
		if f.Path != path {
			continue
		}
		for _, h := range f.Hunks {
			n := h.New
			for text := range strings.Lines(h.Text) {
				if strings.HasPrefix(text, "-") {
					continue
				}
				if n == line {
					return contract.Clip(strings.TrimSpace(text[1:]), 500)
				}
				n++
			}
		}
	}
	return ""
}

func printFiles(w io.Writer, r view.Review) {
	terminal.Text(w, "\n"+r.Summary+"\n")
	for _, f := range r.Files {
		terminal.Row(w, "")
		terminal.Row(w, string(f.Op), terminal.OneLine(f.Path, 500)+standing.Suffix(f.Plain))
		for _, h := range f.Hunks {
			terminal.Diff(w, fmt.Sprintf("@@ -%d,%d +%d,%d @@ hunk %s\n%s", h.Old, h.OldLines, h.New, h.NewLines, h.ID, h.Text))
		}
	}
	if r.More > 0 {
		terminal.Row(w, "", fmt.Sprintf("and %d files more", r.More))
	}
	if r.Answered.IsZero() {
		terminal.Text(w, fmt.Sprintf("\nPublish it: choir review %[1]s --publish; a part: --take PATH, --hunk HUNK; send it back: --revise --comment PATH:LINE=WORDS; or --discard\n", r.Run))
	}
}
