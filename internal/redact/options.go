package redact

import (
	"path"
	"slices"
	"strings"
	"sync"

	"choir.dev/choiros/internal/lazy"
)

// option is a program's option whose value is a secret.
type option struct {
	name string
	// after separates a name that may be kept from the secret, as in user:password; ""
	// when the whole value is the secret.
	after string
	// attached and apart say where the value may be: in the same word (-pX), or in the
	// next (-p X).
	attached, apart bool
	anywhere        bool // whether it counts for any program
}

// pair makes an option whose value is a name and a secret, given one whose whole value is
// the secret. attached and apart make one whose value may be only in the same word, or only
// in the next.
func pair(name, after string) option {
	return option{name: name, after: after, attached: true, apart: true}
}
func apart(name string) option    { return option{name: name, apart: true} }
func given(name string) option    { return option{name: name, attached: true, apart: true} }
func attached(name string) option { return option{name: name, attached: true} }

// taking lists the programs that have options for secrets whose names do not say so. A name
// that ends in * is a prefix.
var taking = sync.OnceValue(func() map[string][]option {
	return map[string][]option{
		"curl": {pair("-u", ":"), pair("--user", ":"), pair("-U", ":"), pair("--proxy-user", ":"), pair("-E", ":"), pair("--cert", ":"), given("--oauth2-bearer"), given("-b"), given("--cookie")},
		"http": {pair("-a", ":"), pair("--auth", ":")}, "https": {pair("-a", ":"), pair("--auth", ":")}, "xh": {pair("-a", ":"), pair("--auth", ":")},
		"ab":     {pair("-A", ":"), pair("-P", ":")},
		"mysql*": {attached("-p")}, "mariadb*": {attached("-p")}, "sshpass": {given("-p")}, "redis-cli": {given("-a")}, "mongo*": {given("-p")},
		"zip": {given("-P")}, "unzip": {given("-P")}, "7z*": {attached("-p")}, "ldap*": {given("-w")}, "mosquitto_*": {given("-P")}, "sqlcmd": {given("-P")},
		"smbclient": {pair("-U", "%"), pair("--user", "%")}, "rpcclient": {pair("-U", "%")}, "lftp": {pair("-u", ",")},
		"winexe": {pair("-U", "%")}, "net": {pair("-U", "%")}, "ssh-keygen": {given("-N"), given("-P")}, "twine": {given("-p")}, "cqlsh": {given("-p")}, "rdesktop": {given("-p")},
		"plink": {apart("-pw")}, "pscp": {apart("-pw")}, "psftp": {apart("-pw")}, "rar": {attached("-p"), attached("-hp")}, "unrar": {attached("-p")},
		"ipmitool": {given("-P")}, "snmp*": {given("-A"), given("-X")},
		"openssl": {apart("-k"), apart("-K"), pair("-passin", "pass:"), pair("-passout", "pass:"), pair("-pass", "pass:")},
		// These have such options only with the command login.
		"docker": {given("-p")}, "podman": {given("-p")}, "nerdctl": {given("-p")}, "helm": {given("-p")}, "az": {given("-p")}, "oc": {given("-p")}, "cf": {given("-p")},
	}
})

// byLogin lists the programs whose options for secrets count only with the command login.
// others lists programs that use the same options for something else, such as the user who
// runs a program.
var (
	byLogin = []string{"docker", "podman", "nerdctl", "helm", "az", "oc", "cf"}
	others  = []string{"docker-compose", "kubectl", "sudo", "doas", "chroot", "setpriv", "runuser", "su", "systemd-run", "bwrap", "unshare", "install", "chown", "ssh", "scp", "sftp", "rsync"}
	// anywhere lists options that count for programs that are not listed.
	anywhere = []option{{"-u", ":", true, true, true}, {"--user", ":", true, true, true}, {"--proxy-user", ":", true, true, true}, {"--auth", ":", true, true, true}}
	// switches matches curl's one-letter options that may be joined with -u or -U in one
	// word.
	switches = lazy.Regexp(`^-[sSfLkvgGiIjJNOqRZ46#]+(u.*|U.*)$`)
	// numbers matches a user's and a group's number, or two ports, which are no secrets.
	numbers = lazy.Regexp(`^(?:[\d.]+:)?\d+:\d+(?:/(?:tcp|udp))?$`)
	// aHeader matches a word that is an HTTP header which authorises a request, and
	// anyHeader a word that is given as a header and named like a secret; the match is the
	// part that is kept.
	aHeader   = lazy.Regexp(`(?i)^(?:-H|--?[a-z-]*header=|[a-z0-9_./:*-]*header=)?(?:(?:proxy-)?authorization:[ \t]*(?:(?:basic|bearer|token)[ \t]+)?|(?:set-)?cookie:[ \t]*[^\s=;]+=)`)
	anyHeader = lazy.Regexp(`(?i)^[a-z0-9-]*(?:` + secretName + `|-key|signature):[ \t]*`)
	headers   = []string{"-H", "--header", "--headers"}
	// variable matches the assignment of a variable in capitals that is called a key.
	variable = lazy.Regexp(`^(?:[A-Z0-9_]*_)?KEY=`)
	// taken lists options and programs whose next argument is a name with its value.
	taken = []string{"-e", "--env", "env", "export", "--build-arg", "--set", "--from-literal"}
	// setting matches the name of a setting that is a secret, if it follows one of
	// setters.
	setting = lazy.Regexp(`(?i)^[a-z0-9_./:-]*[_.:-]` + secretName + `$`)
	setters = []string{"set", "config", "config:set", "--global", "--add", "--replace-all"}
)

// optionsOf returns the options of the program that a word calls; rest are the words after
// it. known reports whether the program is listed.
func optionsOf(called string, rest []word) (out []option, known bool) {
	name := called
	if strings.HasPrefix(called, "/") || strings.HasPrefix(called, ".") || strings.HasPrefix(called, "~/") {
		name = path.Base(called)
	} else if strings.Contains(called, "/") {
		return nil, false
	}
	if slices.Contains(others, name) {
		return nil, true
	}
	for program, options := range taking() {
		prefix, open := strings.CutSuffix(program, "*")
		if name != program && !(open && strings.HasPrefix(name, prefix)) {
			continue
		}
		if slices.Contains(byLogin, name) && !slices.ContainsFunc(rest[:min(len(rest), 20)], func(w word) bool { return w.text == "login" }) {
			return nil, true
		}
		return options, true
	}
	return nil, false
}

// word is a word of a command: its text without quotes, and its place in the original text.
type word struct {
	text       string
	start, end int
	ends       bool // whether a command ends before it
	bare       bool // whether it is part of a shell's text and not quoted from its beginning on
}

// secretIn returns the index in an option's value at which the secret begins; -1 if there
// is none.
func (o option) secretIn(value string) int {
	at := 0
	if o.after != "" {
		i := strings.Index(value, o.after)
		if i < 0 {
			return -1
		}
		at = i + len(o.after)
	}
	rest := value[at:]
	if rest == "" && o.after == ":" && len(value) > 12 {
		return 0 // without a password, a name too long for a person's is taken for the secret
	}
	if rest == "" || strings.HasPrefix(rest, "//") || (o.after == "" || o.anywhere) && numbers().MatchString(value) {
		return -1
	}
	return at
}

// secrets finds the words that contain secrets, by the options before them and by their own
// names, and returns for each the index at which the secret begins.
func secrets(words []word) map[int]int {
	out := map[int]int{}
	options := anywhere
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w.ends {
			options = anywhere
		}
		if got, known := optionsOf(w.text, words[i+1:]); known {
			options = got
			continue
		}
		before := ""
		if i > 0 && !w.ends {
			before = words[i-1].text
		}
		if at := w.called(before); at >= 0 {
			out[i] = at
			continue
		}
		var next *word
		if i+1 < len(words) && !words[i+1].ends {
			next = &words[i+1]
		}
		at, apart, is := w.given(options, next)
		if !is && next != nil && !strings.HasPrefix(next.text, "-") && (i > 0 && named().MatchString(w.text) || slices.Contains(setters, before) && setting().MatchString(w.text)) {
			at, apart = 0, true
		}
		switch {
		case at >= 0 && apart:
			out[i+1] = at
			i++
		case at >= 0:
			out[i] = at
		}
	}
	return out
}

// called returns the index at which the secret begins in a word that names itself a secret,
// such as TOKEN=x; -1 if it does not. before is the preceding word.
func (w word) called(before string) int {
	if !strings.ContainsAny(w.text, ":=") {
		return -1
	}
	at := -1
	if m := aHeader().FindString(w.text); m != "" {
		at = len(m)
	} else if m := anyHeader().FindString(w.text); m != "" && slices.Contains(headers, before) {
		at = len(m)
	} else if m := variable().FindString(w.text); m != "" && !script(before) {
		at = len(m)
	} else if m := whole().FindStringSubmatchIndex(w.text); m != nil && (w.bare || slices.Contains(taken, before)) && !script(before) {
		at = m[3]
	}
	if at >= 0 && (at == len(w.text) || w.text[at:] == "$") { // a "$" at the end belongs to what follows the word
		return -1
	}
	return at
}

// given returns the index of the secret that the option in w gives, either in w or, if
// apart is set, in the next word; -1 if there is none. is reports whether w is one of the
// options.
func (w word) given(options []option, next *word) (at int, apart, is bool) {
	text, skipped := w.text, 0
	if m := switches().FindStringSubmatchIndex(text); m != nil && slices.ContainsFunc(options, func(o option) bool { return o.name == "-U" && o.after == ":" }) {
		text, skipped = "-"+text[m[2]:], m[2]-1
	}
	for _, o := range options {
		value, is := strings.CutPrefix(text, o.name)
		if !is {
			continue
		}
		if value == "" {
			if o.apart && next != nil {
				if at := o.secretIn(next.text); at >= 0 {
					return at, true, true
				}
			}
			return -1, false, false
		}
		at := len(o.name) + skipped
		if strings.HasPrefix(o.name, "--") {
			if value, is = strings.CutPrefix(value, "="); !is {
				continue
			}
			at++
		}
		if s := o.secretIn(value); o.attached && s >= 0 {
			return at + s, false, true
		}
		return -1, false, false
	}
	return -1, false, false
}

// byOption replaces the secrets in separate arguments that options give.
func byOption(argv []string) []string {
	words := make([]word, len(argv))
	for i, a := range argv {
		words[i] = word{text: a}
	}
	out := slices.Clone(argv)
	for i, at := range secrets(words) {
		out[i] = argv[i][:at] + Mark
	}
	return out
}

// deepest bounds how many levels of quoted texts within texts are searched.
const deepest = 4

// These remove and add the escapes of texts in double quotes and in apostrophes.
var (
	unquoted      = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\$`, `$`, "\\`", "`")
	quoted        = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	unapostrophed = strings.NewReplacer(`'\''`, `'`)
	apostrophed   = strings.NewReplacer(`'`, `'\''`)
)

// inText replaces secrets in a shell's text, and in the texts that it quotes.
func inText(s string, depth int) string {
	if depth == deepest || !strings.ContainsAny(s, " \t\n") {
		return inForm().ReplaceAllString(s, "${1}"+Mark)
	}
	words := lex(s)
	found := secrets(words)
	var b strings.Builder
	done := 0
	for i, w := range words {
		raw := s[w.start:w.end]
		at, is := found[i]
		switch {
		case is:
			raw = marked(raw, at)
		case strings.ContainsAny(w.text, " \t\n"):
			if q := strings.IndexAny(raw, `"'`); q >= 0 && q < len(raw)-1 && raw[len(raw)-1] == raw[q] {
				out, back := unquoted, quoted
				if raw[q] == '\'' {
					out, back = unapostrophed, apostrophed
				}
				inner := out.Replace(raw[q+1 : len(raw)-1])
				if marked := inText(inner, depth+1); marked != inner {
					raw = raw[:q+1] + back.Replace(marked) + raw[len(raw)-1:]
				}
			}
		default:
			raw = inForm().ReplaceAllString(raw, "${1}"+Mark)
		}
		b.WriteString(s[done:w.start] + raw)
		done = w.end
	}
	return b.String() + s[done:]
}

// marked returns a word as in the original text, with everything from the secret on
// replaced, and an open quote closed.
func marked(raw string, at int) string {
	if at == 0 {
		return Mark
	}
	i, open := 0, byte(0)
	for n := 0; i < len(raw) && n < at; i++ {
		switch c := raw[i]; {
		case open == 0 && (c == '"' || c == '\''):
			open = c
		case c == open:
			open = 0
		case c == '\\' && open != '\'' && i+1 < len(raw):
			i, n = i+1, n+1
		default:
			n++
		}
	}
	if open != 0 {
		return raw[:i] + Mark + string(open)
	}
	return raw[:i] + Mark
}

// lex splits a shell's text into words. It need not implement all of the shell's grammar,
// because the words are only searched for options.
func lex(s string) []word {
	var out []word
	var b strings.Builder
	start, open, ends := -1, byte(0), false
	flush := func(end int) {
		if start >= 0 {
			out = append(out, word{text: b.String(), start: start, end: end, ends: ends, bare: s[start] != '"' && s[start] != '\''})
			start, ends = -1, false
			b.Reset()
		}
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		separates := open == 0 && strings.IndexByte(" \t\n;|&()`", c) >= 0
		if separates {
			flush(i)
			ends = ends || c != ' ' && c != '\t'
			continue
		}
		if start < 0 {
			start = i
		}
		switch {
		case open == 0 && (c == '"' || c == '\''):
			open = c
		case c == open:
			open = 0
		case c == '\\' && open != '\'' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	flush(len(s))
	return out
}
