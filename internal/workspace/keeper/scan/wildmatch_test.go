package scan

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// backtracking is the plain definition of what wildmatch computes.
func backtracking(p, t string, atStart bool) bool {
	for p != "" {
		switch c := p[0]; c {
		case '*':
			stars := len(p) - len(strings.TrimLeft(p, "*"))
			rest := p[stars:]
			deep := stars > 1 && atStart && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
			if deep && rest == "" {
				return true
			}
			if deep && backtracking(strings.TrimPrefix(strings.TrimPrefix(rest, `\`), "/"), t, true) {
				return true
			}
			for i := 0; ; i++ {
				if backtracking(rest, t[i:], false) {
					return true
				}
				if i == len(t) || (!deep && t[i] == '/') {
					return false
				}
			}
		case '?':
			if t == "" || t[0] == '/' {
				return false
			}
			p, t = p[1:], t[1:]
		case '[':
			n, ok := wildClass(p, t)
			if n == 0 || !ok {
				return false
			}
			p, t = p[n:], t[1:]
		default:
			if c == '\\' {
				if len(p) == 1 {
					return false
				}
				p = p[1:]
				c = p[0]
			}
			if t == "" || t[0] != c {
				return false
			}
			p, t = p[1:], t[1:]
			atStart = c == '/'
			continue
		}
		atStart = false
	}
	return t == ""
}

func TestWildmatchIsItsDefinition(t *testing.T) {
	part := rapid.SampledFrom([]string{"a", "b", "*", "**", "?", "/", "/**/", "**/", "[ab]", "[!a]", `\*`, `\/`, "***"})
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab/*")), 0, 10, -1)
	rapid.Check(t, func(rt *rapid.T) {
		for range 200 {
			p := strings.Join(rapid.SliceOfN(part, 0, 7).Draw(rt, "pattern"), "")
			s := text.Draw(rt, "text")
			var steps int64
			if got, want := wildmatch(p, s, &steps), backtracking(p, s, true); got != want {
				rt.Fatalf("%q against %q is %v; want %v", p, s, got, want)
			}
			if limit := int64((len(p) + 2) * (len(s) + 2) * (len(s) + 2)); steps > limit {
				rt.Fatalf("%q against %q took %d steps", p, s, steps)
			}
		}
	})
}

func TestAPatternOfStarsIsCheap(t *testing.T) {
	for _, p := range []string{strings.Repeat("*a", 500) + "b", strings.Repeat("**/a", 200) + "/b", strings.Repeat("a**", 300) + "c", strings.Repeat("**/*a*", 150) + "b"} {
		var steps int64
		if wildmatch(p, strings.Repeat("aaaaaaaa/", 400), &steps) {
			t.Errorf("%.20q… matches", p)
		}
		if steps > 20_000_000 {
			t.Errorf("%.20q… took %d steps", p, steps)
		}
	}
}
