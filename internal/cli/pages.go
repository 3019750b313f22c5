package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"choir.dev/choiros/internal/cli/terminal"
	"choir.dev/choiros/internal/fault"
)

// Walk calls visit for every verb, those behind others too; name is all words of
// its name.
func Walk(verbs []Verb, before string, visit func(name string, v Verb)) {
	for _, v := range verbs {
		name := before + " " + v.name()
		visit(name, v)
		Walk(v.Verbs, name, visit)
	}
}

func (v Verb) name() string { name, _, _ := strings.Cut(v.Use, " "); return name }

// Acts says whether the verb does something itself, and does not only hold others.
func (v Verb) Acts() bool { return v.Asks != nil || v.Does != nil }

// options is the flags that only this verb has, as help shows them.
func (v Verb) options() string {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SortFlags = true
	if v.Flags != nil {
		v.Flags(f)
	}
	return f.FlagUsages()
}

// answers says what --json prints.
func (v Verb) answers() string {
	if v.JSON == nil {
		return v.Raw
	}
	return members(reflect.TypeOf(v.JSON), 3)
}

// members describes the shape of what is printed as JSON: the names of an object's members
// in braces, lists in brackets.
func members(t reflect.Type, depth int) string {
	switch {
	case t.Kind() == reflect.Pointer:
		return members(t.Elem(), depth)
	case t == reflect.TypeFor[time.Time](), t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return ""
	case t.Kind() == reflect.Slice:
		return "[" + members(t.Elem(), depth) + "]"
	case t.Kind() == reflect.Map:
		return "{name: " + members(t.Elem(), depth) + "}"
	case t.Kind() != reflect.Struct || depth == 0:
		return ""
	}
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || len(f.Index) > 1 && name == "" {
			continue
		}
		if f.Anonymous && name == "" {
			continue // its fields are among those of the outer struct
		}
		if name == "" {
			name = f.Name
		}
		if inner := members(f.Type, depth-1); inner != "" && inner != "[]" {
			name += ": " + inner
		}
		names = append(names, name)
	}
	return "{" + strings.Join(names, ", ") + "}"
}

// commonWords says what all verbs share; %s is the mark of a verbatim word.
const commonWords = `Every verb has %[1]s--json%[1]s, and those about what is stored or runs have %[1]s--data DIR%[1]s, which says where.
Those that talk to a running control plane have %[1]s--computer ID%[1]s, for where there are several computers;
%[1]sCHOIR_URL%[1]s and %[1]sCHOIR_TOKEN%[1]s name one elsewhere. On a terminal what takes a while says how far it is, and marks, differences and what would change have colours unless
%[1]sNO_COLOR%[1]s is set.`

// exits is what the exit codes mean, as pairs of a code and its meaning.
var exits = [][2]string{
	{"0", "done"},
	{"1", "failed, which standard error says"},
	{"2", "called with something that is no verb, flag or value it knows"},
	{"3", "the control plane can't be reached, or was lost"},
	{"4", "a run waits for an answer"},
	{"5", "a run still goes on, though the time to wait for it is over"},
	{"128 + n", "ended by signal n, 130 by Ctrl-C"},
}

// WritePage writes docs/cli.md.
func (p Program) WritePage(w io.Writer) {
	fmt.Fprintf(w, "# The command line\n\nMade of the declarations in `internal/cli/verbs` and `cmd/choir`; `TestThePageIsWhatIsDeclared` fails when it is not what they say.\n\n")
	fmt.Fprintf(w, commonWords+"\n\n| exit code | |\n|---|---|\n", "`")
	for _, e := range exits {
		fmt.Fprintf(w, "| %s | %s |\n", e[0], e[1])
	}
	fmt.Fprint(w, "\n`{…}` below is the members of what `--json` prints, `[…]` that there can be several.\n")
	for _, topic := range p.Topics() {
		fmt.Fprintf(w, "\n## %s\n", topic.Name)
		Walk(topic.Verbs, "choir", func(name string, v Verb) {
			if !v.Acts() {
				return
			}
			fmt.Fprintf(w, "\n### %s%s\n\n%s.", name, strings.TrimPrefix(v.Use, v.name()), strings.ReplaceAll(v.Short, "|", "\\|"))
			if v.Long != "" {
				fmt.Fprintf(w, "\n%s", v.Long)
			}
			fmt.Fprintln(w)
			if o := v.options(); o != "" {
				fmt.Fprintf(w, "\n```\n%s```\n", o)
			}
			if v.JSON == nil {
				fmt.Fprintf(w, "\nIt prints %s.\n", v.Raw)
			} else {
				fmt.Fprintf(w, "\n`--json`: `%s`\n", v.answers())
			}
			fmt.Fprint(w, "\n```sh\n"+strings.Join(v.Examples, "\n")+"\n```\n")
		})
	}
}

// writeManual writes the manual page of one verb, or of choir itself where name
// is "choir", in the language of man(7).
func (p Program) writeManual(w io.Writer, name string, v Verb) {
	text := func(s string) string {
		s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
		for _, c := range []string{".", "'"} { // at the beginning of a line it would be a request
			s = strings.ReplaceAll("\n"+s, "\n"+c, "\n\\&"+c)[1:]
		}
		return s
	}
	fmt.Fprintf(w, ".TH %s 1 \"\" \"choir %s\"\n.SH NAME\n%s \\- %s\n", strings.ToUpper(strings.ReplaceAll(name, " ", `\-`)), text(p.Version), text(strings.ReplaceAll(name, " ", "-")), text(v.Short))
	fmt.Fprintf(w, ".SH SYNOPSIS\n.B %s\n%s\n.SH DESCRIPTION\n%s.\n", text(name), text(strings.TrimPrefix(strings.TrimPrefix(v.Use, v.name()), " ")), text(v.Short))
	verbatim := func(s string) { fmt.Fprintf(w, ".nf\n%s\n.fi\n", text(strings.TrimRight(s, "\n"))) }
	if v.Long != "" {
		fmt.Fprint(w, ".PP\n")
		verbatim(v.Long)
	}
	if o := v.options(); o != "" {
		fmt.Fprint(w, ".SH OPTIONS\n")
		verbatim(o)
	}
	if len(v.Verbs) > 0 {
		fmt.Fprint(w, ".SH VERBS\n")
		for _, inner := range v.Verbs {
			fmt.Fprintf(w, ".TP\n.B %s\n%s.\n", text(name+" "+inner.Use), text(inner.Short))
		}
	}
	if v.Acts() {
		fmt.Fprintf(w, ".SH JSON\n%s\n", text(v.answers()))
		fmt.Fprint(w, ".SH EXAMPLES\n")
		verbatim(strings.Join(v.Examples, "\n"))
	}
	fmt.Fprintf(w, ".SH ALL VERBS\n%s\n.SH EXIT STATUS\n", text(fmt.Sprintf(commonWords, "")))
	for _, e := range exits {
		fmt.Fprintf(w, ".TP\n.B %s\n%s\n", e[0], text(e[1]))
	}
	if name != "choir" {
		fmt.Fprint(w, ".SH SEE ALSO\n.BR choir (1)\n")
	}
}

// written is what man --json prints.
type written struct {
	Paths []string `json:"paths"`
}

// Manual is the verb that writes the manual pages.
func (p Program) Manual() Verb {
	return Verb{
		Use: "man [DIR]", Short: "Write the manual pages into DIR, or choir's own to standard output", Args: Between(0, 1), JSON: written{},
		Examples: []string{"choir man ~/.local/share/man/man1", "choir man | man -l -"},
		Does: func(_ context.Context, t *Call, args []string) error {
			all := Verb{Use: "choir", Short: "ChoirOS, the automatic computer"}
			for _, topic := range p.Topics() {
				all.Verbs = append(all.Verbs, topic.Verbs...)
			}
			if len(args) == 0 {
				if t.JSON {
					return Usage(fmt.Errorf("with --json the pages go into a folder: choir man DIR --json"))
				}
				var page strings.Builder
				p.writeManual(&page, "choir", all)
				_, err := io.WriteString(os.Stdout, page.String())
				return err
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fault.New("man", fault.Invalid, "Choose another folder.", err)
			}
			var out written
			var failed error
			Walk([]Verb{all}, "", func(name string, v Verb) {
				name = strings.TrimSpace(name)
				var page strings.Builder
				p.writeManual(&page, name, v)
				path := filepath.Join(args[0], strings.ReplaceAll(name, " ", "-")+".1")
				if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil && failed == nil {
					failed = err
				}
				out.Paths = append(out.Paths, path)
			})
			if failed != nil {
				return failed
			}
			return t.Show(out, func(w io.Writer) { terminal.Row(w, fmt.Sprintf("wrote %d pages to %s", len(out.Paths), args[0])) })
		},
	}
}
