// Package redact takes secrets out of text that is recorded or shown: known
// ones in the spellings they could come back in, and what only looks like one.
package redact

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/lazy"
)

// Mark stands where a secret stood.
const Mark = "[key]"

// shortest is how long a known secret must be, in bytes, to be told from
// ordinary text.
const shortest = 6

// shaped finds what looks like a key, whether ours or not: bearer tokens, the
// keys of well-known services by their prefixes, private keys, and JSON web
// tokens.
var shaped = lazy.Regexp(`(?i)(bearer\s+[a-z0-9._~+/=-]{8,}|\bsk-[a-z0-9*_-]{6,}|\bchoir_[a-z0-9_-]{16,}|\bgh[pousr]_[a-z0-9]{20,}|\bgithub_pat_[a-z0-9_]{20,}|` +
	`\b[sr]k_(?:live|test)_[a-z0-9]{10,}|\bglpat-[a-z0-9_-]{16,}|\bxox[abprs]-[a-z0-9-]{10,}|\bnpm_[a-z0-9]{30,}|\bpypi-[a-z0-9_-]{30,}|\bAKIA[0-9A-Z]{16}\b|\bAIza[a-z0-9_-]{30,}|` +
	`\beyJ[a-z0-9_-]{8,}\.[a-z0-9_-]{8,}\.[a-z0-9_-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*)`)

// Shaped removes what looks like a key.
func Shaped(s string) string { return shaped().ReplaceAllString(s, Mark) }

// Spellings are the forms in which a secret could come back; none when it is
// too short to be told from ordinary text.
func Spellings(secret string) []string {
	if len(secret) < shortest {
		return nil
	}
	b := []byte(secret)
	return []string{
		secret,
		base64.StdEncoding.EncodeToString(b), base64.RawStdEncoding.EncodeToString(b),
		base64.URLEncoding.EncodeToString(b), base64.RawURLEncoding.EncodeToString(b),
		hex.EncodeToString(b), strings.ToUpper(hex.EncodeToString(b)),
		url.QueryEscape(secret),
	}
}

// secretName finds words that name what follows them as a secret.
const secretName = `(?:pass(?:word|wd|phrase)?|secret(?:[-_]?key)?|token|(?:api|access|account|private|signing|encryption|master|shared|storage|subscription|deploy|license|hmac|webhook)[-_]?key|auth(?:orization)?|credentials?|_pwd)`

// value is what a shell or JSON takes for one: quoted, or up to what can't be in it.
const value = `((?:\$?"(?:[^"\\]|\\.)*"|\$?'[^']*')+|\\"(?:[^"\\]|\\\\(?:\\.)?|\\[^"\\])*\\"|["']?(?:[^\s"'&;,}|)\x60\\]|\\.)+)`

var (
	// assigned is a name with its value: --token=…, API_KEY=…, password: …, also
	// within quotes of their own kind, which are then escaped.
	assigned = lazy.Regexp(`(?i)((?:^|[^a-z0-9_.])[a-z0-9_.-]*` + secretName + `\\?["']?\s*[=:]\s*)((?:basic|bearer|token)\s+)?` + value)
	// whole is an argument that is a name with its value, whatever is in that.
	whole = lazy.Regexp(`(?is)^((?:--?)?[a-z0-9_.-]*` + secretName + `=).+$`)
	// named is an option whose value is the next argument.
	named = lazy.Regexp(`(?i)^--?[a-z0-9-]*` + secretName + `$`)
	// inOption is the same within one argument, such as a shell's script.
	inOption = lazy.Regexp(`(?i)(\s--?[a-z0-9-]*` + secretName + `\s+)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'-](?:[^\s"'\\]|\\.)*)`)
	// userinfo is the password of a URL, which may have an @ in it, and unless it
	// begins like a port what else a URL ends its host with.
	userinfo = lazy.Regexp(`(?i)([a-z][a-z0-9+.-]*://[^\s/:@"'\[]*:)(?:[^\s/?#]+|\d*[^\s/?#\d@"'${][^\s/?#"']*[/?#][^\s"'@]*)@`)
	// username is one that is a secret itself: no password follows it, or one that
	// says so, or it is longer than people are called.
	username = lazy.Regexp(`(?i)([a-z][a-z0-9+.-]*://)(?:[^\s/?#@:"']{12,}(:(?:x-oauth-basic)?@)|[^\s/?#@:"']{20,}(@))`)
	// inForm is a field of a form or of a URL's query, which has more in it than a
	// shell's words.
	inForm = lazy.Regexp(`(?i)([?&](?:[a-z0-9_.\[\]-]*` + secretName + `|(?:x-amz-)?(?:signature|security-token)|sig)=)[^\s&"'#]+`)
	// header is one that signs a request, whatever its scheme and that one's parts;
	// in a text it ends with its quote or line.
	header = lazy.Regexp(`(?i)((?:^|[\s"'=-])H?(?:(?:proxy-)?authorization:[ \t]*(?:(?:basic|bearer|token)[ \t]+)?|(?:set-)?cookie:[ \t]*[^\s"'=]+=))[^\s"'](?:[^"'\r\n\\]|\\.|="[^"]*")*`)
)

// Args returns a command's arguments as they may be recorded: without the known
// secrets, what looks like a key, and what an argument's name says is one. The
// program's name stays.
func Args(argv, secrets []string) []string {
	if defence.Off(defence.ExecRedacted) {
		return argv
	}
	var spellings []string
	for _, s := range secrets {
		spellings = append(spellings, Spellings(s)...)
	}
	out := make([]string, len(argv))
	for i, a := range byOption(argv) {
		for _, k := range spellings {
			a = strings.ReplaceAll(a, k, Mark)
		}
		a = inText(a, 0)
		a = username().ReplaceAllString(a, "${1}"+Mark+"${2}${3}")
		a = userinfo().ReplaceAllString(a, "${1}"+Mark+"@")
		if i > 0 && !script(argv[i-1]) {
			a = whole().ReplaceAllString(a, "${1}"+Mark)
		}
		a = assigned().ReplaceAllString(a, "${1}${2}"+Mark)
		a = inOption().ReplaceAllString(a, "${1}"+Mark)
		a = header().ReplaceAllString(a, "${1}"+Mark)
		out[i] = Shaped(a)
	}
	return out
}

// script reports whether what follows an option is a shell's text.
func script(option string) bool {
	return strings.HasPrefix(option, "-") && !strings.HasPrefix(option, "--") && strings.HasSuffix(option, "c")
}
