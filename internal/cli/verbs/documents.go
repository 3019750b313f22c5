package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/cli"
	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/client"
	"choir.dev/choiros/internal/view"
)

// readText reads a revision's text from a file, or from standard input.
func readText(name string) (_ string, err error) {
	in := os.Stdin
	if name != "-" {
		if in, err = os.Open(name); err != nil {
			return "", err
		}
		defer in.Close()
	}
	b, err := io.ReadAll(io.LimitReader(in, maxRevision+1))
	if err == nil && len(b) > maxRevision {
		err = fmt.Errorf("%s has more than %d bytes, which a revision that is written may have", name, maxRevision)
	}
	return string(b), err
}

// maxRevision bounds what is read of a revision from a file, in bytes.
const maxRevision = 1 << 20

// Documents is choir documents.
func Documents() cli.Verb {
	var limit, revision, base int
	return cli.Verb{
		Use: "documents DOCUMENT", Short: "List a document's revisions, newest first", Args: cli.Exactly(1), JSON: []view.Document{},
		Long:     "The document of a run stands in what choir runs RUN --json and choir wait --json say. With --json each revision has its text.",
		Examples: []string{"choir documents DOCUMENT", "choir documents DOCUMENT --limit 0 --json"},
		Flags:    func(f *pflag.FlagSet) { f.IntVar(&limit, "limit", 50, "how many; 0: all") },
		Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
			got, err := cli.Every(ctx, limit, func(d view.Document) uint64 { return uint64(d.Revision) }, func(ctx context.Context, before uint64, n int) ([]view.Document, bool, error) {
				return c.Revisions(ctx, args[0], int(before), n)
			})
			if err != nil {
				return err
			}
			return t.Show(got, func(w io.Writer) {
				for _, d := range got {
					terminal.Row(w, d.Revision, terminal.Time(d.Time), terminal.OneLine(d.Author, 60), fmt.Sprintf("%d bytes", len(d.Body)), terminal.OneLine(d.Title, 80))
				}
			})
		},
		Verbs: []cli.Verb{
			{
				Use: "show DOCUMENT", Short: "Print a document", Args: cli.Exactly(1), JSON: view.Document{},
				Examples: []string{"choir documents show DOCUMENT", "choir documents show DOCUMENT --revision 3"},
				Flags:    func(f *pflag.FlagSet) { f.IntVar(&revision, "revision", 0, "which; 0: the newest") },
				Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
					d, err := c.Document(ctx, args[0], revision)
					if err != nil {
						return err
					}
					return t.Show(d, func(w io.Writer) { terminal.Text(w, d.Body) })
				},
			},
			{
				Use: "write DOCUMENT FILE", Short: "Write a document's next revision (-: from standard input)", Args: cli.Exactly(2), JSON: view.Revised{},
				Long: "What others wrote since the revision that it was made from is merged with. Where they changed the same lines it is refused, and nothing changes; " +
					"an agent's text gives way instead and stays in the history. choir undo takes it back.",
				Examples: []string{"choir documents write DOCUMENT notes.md --base 3", "choir documents write DOCUMENT - --base 3 < notes.md"},
				Flags:    func(f *pflag.FlagSet) { f.IntVar(&base, "base", 0, "the revision that it was made from") },
				Ready: func([]string) error {
					if base < 1 {
						return cli.Usage(errors.New("--base names the revision that it was made from: choir documents DOCUMENT lists them"))
					}
					return nil
				},
				Asks: func(ctx context.Context, t *cli.Call, c *client.Client, args []string) error {
					text, err := readText(args[1])
					if err != nil {
						return err
					}
					next := view.Revise{Base: base, Text: text}
					if err := next.Validate(); err != nil {
						return fmt.Errorf("%s: %w", args[1], err)
					}
					r, err := c.Revise(ctx, args[0], next)
					if err != nil {
						return err
					}
					return t.Show(r, func(w io.Writer) {
						if r.Merged {
							terminal.Row(w, "revision", strconv.Itoa(r.Revision), "merged with what others wrote since revision "+strconv.Itoa(base))
						} else {
							terminal.Row(w, "revision", strconv.Itoa(r.Revision))
						}
					})
				},
			},
		},
	}
}
