package gitserve

import (
	"strings"
	"testing"
)

// TestWhatARequestWants reads the wants of requests as git itself would, and refuses what is framed
// in another way.
func TestWhatARequestWants(t *testing.T) {
	one, two, long := strings.Repeat("1a", 20), strings.Repeat("2b", 20), strings.Repeat("3c", 32)
	begin := line("command=fetch") + line("agent=git/2") + line("object-format=sha1\n") + "0001" + line("thin-pack\n")
	for what, tt := range map[string]struct {
		asked, want string
		bad         bool
	}{
		"nothing":                    {asked: line("command=ls-refs\n") + "0001" + line("peel\n") + "0000"},
		"each once, in order":        {asked: begin + line("want "+two+"\n") + line("want "+one) + line("want "+two) + line("done\n") + "0000", want: one + "\n" + two + "\n"},
		"an older protocol":          {asked: line("want "+two+" side-band-64k ofs-delta\n") + line("want "+one+"\n") + "0000" + line("have "+long) + line("done\n"), want: one + "\n" + two + "\n"},
		"capital letters":            {asked: begin + line("want "+strings.ToUpper(one)+"\n") + "0000", want: one + "\n"},
		"something behind it":        {asked: begin + line("want "+one+" and more\n") + "0000", want: one + "\n"},
		"a long one":                 {asked: begin + line("want "+long+"\n") + "0000", want: long + "\n"},
		"behind the end":             {asked: begin + line("want "+one+"\n") + "0000" + line("want "+two) + "0002" + line("want "+long) + "0000", want: one + "\n" + two + "\n" + long + "\n"},
		"what it has is not wanted":  {asked: begin + line("have "+one+"\n") + "0000"},
		"no id":                      {asked: begin + line("want main\n") + "0000", bad: true},
		"a short one":                {asked: begin + line("want "+one[:39]+"\n") + "0000", bad: true},
		"a line that is cut off":     {asked: begin + line("want " + one)[:20], bad: true},
		"a length that is cut off":   {asked: begin + "00", bad: true},
		"a length of three":          {asked: begin + "0003" + line("want "+one), bad: true},
		"a length that is no number": {asked: begin + "zzzz" + line("want "+one), bad: true},
	} {
		got, err := wanted([]byte(tt.asked))
		if (err != nil) != tt.bad || string(got) != tt.want {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}
