// Package redact removes secrets from text that is recorded or shown: known secrets in
// every encoding that is likely to occur, and text that merely looks like a secret.
package redact

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/lazy"
)

// Mark replaces a secret.
const Mark = "[key]"

// shortest is the length in bytes below which a known secret is not searched for, because
// it can't be distinguished from ordinary text.
const shortest = 6

// shaped matches text that looks like a key, ours or another: bearer tokens, keys of
// well-known services by their prefixes, private keys, and JSON web tokens.
var shaped = lazy.Regexp(`(?i)(bearer\s+[a-z0-9._~+/=-]{8,}|\bsk-[a-z0-9*_-]{6,}|\bchoir_[a-z0-9_-]{16,}|\bgh[pousr]_[a-z0-9]{20,}|\bgithub_pat_[a-z0-9_]{20,}|` +
	`\b[sr]k_(?:live|test)_[a-z0-9]{10,}|\bglpat-[a-z0-9_-]{16,}|\bxox[abprs]-[a-z0-9-]{10,}|\bnpm_[a-z0-9]{30,}|\bpypi-[a-z0-9_-]{30,}|\bAKIA[0-9A-Z]{16}\b|\bAIza[a-z0-9_-]{30,}|` +
	`\beyJ[a-z0-9_-]{8,}\.[a-z0-9_-]{8,}\.[a-z0-9_-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*)`)

// Shaped replaces everything that looks like a key.
func Shaped(s string) string { return shaped().ReplaceAllString(s, Mark) }

// Spellings returns the encodings in which a secret may occur; none if it is too short to
// be distinguished from ordinary text.
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

// secretName matches words that say that a secret follows.
const secretName = `(?:pass(?:word|wd|phrase)?|secret(?:[-_]?key)?|token|(?:api|access|account|private|signing|encryption|master|shared|storage|subscription|deploy|license|hmac|webhook)[-_]?key|auth(?:orization)?|credentials?|_pwd)`

// value matches a value in a shell's text or JSON: a quoted one, or up to a character that
// must be quoted.
const value = `((?:\$?"(?:[^"\\]|\\.)*"|\$?'[^']*')+|\\"(?:[^"\\]|\\\\(?:\\.)?|\\[^"\\])*\\"|["']?(?:[^\s"'&;,}|)\x60\\]|\\.)+)`

var (
	// assigned matches a name with its value: --token=…, API_KEY=…, password: …. The
	// quotes may be escaped, as they are within another quoted text.
	assigned = lazy.Regexp(`(?i)((?:^|[^a-z0-9_.])[a-z0-9_.-]*` + secretName + `\\?["']?\s*[=:]\s*)((?:basic|bearer|token)\s+)?` + value)
	// whole matches an argument that is a name with its value, whatever the value
	// contains.
	whole = lazy.Regexp(`(?is)^((?:--?)?[a-z0-9_.-]*` + secretName + `=).+$`)
	// named matches an option whose value is the next argument.
	named = lazy.Regexp(`(?i)^--?[a-z0-9-]*` + secretName + `$`)
	// inOption matches the same within one argument, such as a shell's script.
	inOption = lazy.Regexp(`(?i)(\s--?[a-z0-9-]*` + secretName + `\s+)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'-](?:[^\s"'\\]|\\.)*)`)
	// userinfo matches the password in a URL, which may contain an @ and, unless it begins
	// like a port, the characters that end a URL's host.
	userinfo = lazy.Regexp(`(?i)([a-z][a-z0-9+.-]*://[^\s/:@"'\[]*:)(?:[^\s/?#]+|\d*[^\s/?#\d@"'${][^\s/?#"']*[/?#][^\s"'@]*)@`)
	// username matches a user name in a URL that is itself a secret: no password follows,
	// or one that says so, and the name is longer than people's.
	username = lazy.Regexp(`(?i)([a-z][a-z0-9+.-]*://)(?:[^\s/?#@:"']{12,}(:(?:x-oauth-basic)?@)|[^\s/?#@:"']{20,}(@))`)
	// inForm matches a field of a form or of a URL's query, which may contain characters
	// that a shell's words can't.
	inForm = lazy.Regexp(`(?i)([?&](?:[a-z0-9_.\[\]-]*` + secretName + `|(?:x-amz-)?(?:signature|security-token)|sig)=)[^\s&"'#]+`)
	// header matches an HTTP header that authorises a request, whatever its scheme; in a
	// text it ends with its quote or line.
	header = lazy.Regexp(`(?i)((?:^|[\s"'=-])H?(?:(?:proxy-)?authorization:[ \t]*(?:(?:basic|bearer|token)[ \t]+)?|(?:set-)?cookie:[ \t]*[^\s"'=]+=))[^\s"'](?:[^"'\r\n\\]|\\.|="[^"]*")*`)
)

// Args returns a command's arguments as they may be recorded: without the known secrets,
// what looks like a key, and the values of arguments whose names say that they are secrets.
// The program's name is kept.
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

// script reports whether the argument after an option is a shell's text.
func script(option string) bool {
	return strings.HasPrefix(option, "-") && !strings.HasPrefix(option, "--") && strings.HasSuffix(option, "c")
}
