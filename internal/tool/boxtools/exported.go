package boxtools

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	exportedName = regexp.MustCompile(`^(?:declare|export)(?: -[a-zA-Z]+)? ([a-zA-Z_][a-zA-Z0-9_]*)`)
	shellName    = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	errExported  = errors.New("bash's list of variables is not as it writes them")
)

// exported reads what bash's "export -p" wrote: the variables that a program which it starts would get, as
// NAME=value. A list without any is none that bash wrote.
func exported(list string) ([]string, error) {
	if strings.ContainsRune(list, 0) {
		return nil, errExported // with it no program could be started
	}
	var out []string
	for list != "" {
		at := exportedName.FindStringSubmatchIndex(list)
		if at == nil {
			return nil, errExported
		}
		name := list[at[2]:at[3]]
		list = list[at[1]:]
		if after, ok := strings.CutPrefix(list, "\n"); ok {
			list = after // it is exported and has no value
			continue
		}
		if strings.HasPrefix(list, "=(") {
			// An array, which no program gets.
			after, err := pastArray(list)
			if err != nil {
				return nil, err
			}
			list = after
			continue
		}
		rest, ok := strings.CutPrefix(list, "=")
		if !ok {
			return nil, errExported
		}
		value, rest, err := unquoted(rest)
		if err != nil {
			return nil, err
		}
		if rest, ok = strings.CutPrefix(rest, "\n"); !ok {
			return nil, errExported
		}
		list = rest
		out = append(out, name+"="+value)
	}
	if len(out) == 0 {
		return nil, errExported
	}
	return out, nil
}

// pastArray is what follows the line of an array. Its keys and values are in quotes, or have nothing that needs them.
func pastArray(s string) (string, error) {
	for s != "" {
		switch {
		case s[0] == '\n':
			return s[1:], nil
		case s[0] == '"' || strings.HasPrefix(s, "$'"):
			_, rest, err := unquoted(s)
			if err != nil {
				return "", err
			}
			s = rest
		default:
			s = s[1:]
		}
	}
	return "", errExported
}

// unquoted reads one word as bash quotes values: "…", or $'…' where something in it can't be shown.
func unquoted(s string) (value, rest string, err error) {
	if after, ok := strings.CutPrefix(s, "$'"); ok {
		return ansi(after)
	}
	s, ok := strings.CutPrefix(s, `"`)
	if !ok {
		return "", "", errExported
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:], nil
		case s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0:
			i++
		}
		b.WriteByte(s[i])
	}
	return "", "", errExported
}

// ansi reads $'…' from behind its first quote.
func ansi(s string) (value, rest string, err error) {
	const letters, means = `abeEfnrtv\'"?`, "\a\b\x1b\x1b\f\n\r\t\v\\'\"?"
	var b strings.Builder
	for s != "" {
		c := s[0]
		s = s[1:]
		if c == '\'' {
			return b.String(), s, nil
		}
		if c != '\\' {
			b.WriteByte(c)
			continue
		}
		if s == "" {
			break
		}
		if at := strings.IndexByte(letters, s[0]); at >= 0 {
			b.WriteByte(means[at])
			s = s[1:]
			continue
		}
		base, skip, most := 8, 0, 3
		switch s[0] {
		case 'x':
			base, skip, most = 16, 1, 2
		case 'u':
			base, skip, most = 16, 1, 4
		case 'U':
			base, skip, most = 16, 1, 8
		}
		n := skip
		for n < len(s) && n < skip+most && digit(s[n], base) {
			n++
		}
		code, err := strconv.ParseUint(s[skip:n], base, 32)
		switch {
		case err != nil, code == 0:
			return "", "", errExported
		case most > 3 && code > utf8.MaxRune, most <= 3 && code > 0xff:
			return "", "", errExported
		case most > 3:
			b.WriteRune(rune(code))
		default:
			b.WriteByte(byte(code))
		}
		s = s[n:]
	}
	return "", "", errExported
}

func digit(c byte, base int) bool {
	_, err := strconv.ParseUint(string(c), base, 8)
	return err == nil
}

// unnamed are variables whose names bash has no variable for. It passes them on as they are, and lists none.
func unnamed(env []string) []string {
	var out []string
	for _, kv := range env {
		if name, _, ok := strings.Cut(kv, "="); ok && !shellName.MatchString(name) && !strings.HasPrefix(name, "BASH_FUNC_") {
			out = append(out, kv)
		}
	}
	return out
}
