package redact_test

import (
	"slices"
	"strings"
	"testing"

	"choir.dev/choiros/internal/redact"
)

func TestArgs(t *testing.T) {
	const known = "hunter2hunter2"
	for _, c := range []struct{ in, want []string }{
		{[]string{"ls", "-la", "workspace"}, []string{"ls", "-la", "workspace"}},
		{[]string{"echo", known, "x" + known + "y"}, []string{"echo", "[key]", "x[key]y"}},
		{[]string{"echo", "aHVudGVyMmh1bnRlcjI="}, []string{"echo", "[key]"}},
		{[]string{"curl", "-H", "Authorization: Bearer abcdefgh12345678", "https://a.example"}, []string{"curl", "-H", "Authorization: Bearer [key]", "https://a.example"}},
		{[]string{"curl", "-H", "Authorization: Basic dTpwYXNz"}, []string{"curl", "-H", "Authorization: Basic [key]"}},
		{[]string{"git", "clone", "https://me:s3cret@git.example/x.git"}, []string{"git", "clone", "https://me:[key]@git.example/x.git"}},
		{[]string{"tool", "--token", "abc123", "--verbose"}, []string{"tool", "--token", "[key]", "--verbose"}},
		{[]string{"tool", "--token=abc123", "--api-key", "--verbose"}, []string{"tool", "--token=[key]", "--api-key", "--verbose"}},
		{[]string{"env", "API_KEY=abc123", "make"}, []string{"env", "API_KEY=[key]", "make"}},
		{[]string{"sh", "-c", "export DB_PASSWORD='p w'; tool --secret abc --quiet"}, []string{"sh", "-c", "export DB_PASSWORD=[key]; tool --secret [key] --quiet"}},
		{[]string{"env", "DB_PASSWORD=a b&c;d'e", "--token=x,y}z", "MYSQL_PWD=abcdef", "PWD=/a b"}, []string{"env", "DB_PASSWORD=[key]", "--token=[key]", "MYSQL_PWD=[key]", "PWD=/a b"}},
		{[]string{"bash", "-lc", `PASSWORD="a b" make; curl -d '{"password": "c d", "a": 1}'`}, []string{"bash", "-lc", `PASSWORD=[key] make; curl -d '{"password": [key], "a": 1}'`}},
		{[]string{"sh", "-c", `(PASSWORD=p x)|TOKEN=t y; $(SECRET=s z)`}, []string{"sh", "-c", `(PASSWORD=[key] x)|TOKEN=[key] y; $(SECRET=[key] z)`}},
		{[]string{"sh", "-c", "`TOKEN=t x`; PASSWORD=a\\ b c; PASSWORD=$'d e'\"f\" f; PASSWORD=\"g\\\"h\" i"}, []string{"sh", "-c", "`TOKEN=[key] x`; PASSWORD=[key] c; PASSWORD=[key] f; PASSWORD=[key] i"}},
		{[]string{"sh", "-c", `curl -d "{\"password\": \"a \\\"b\", \"x\": 1}"; t --token "a\"b" c`}, []string{"sh", "-c", `curl -d "{\"password\": [key], \"x\": 1}"; t --token [key] c`}},
		{[]string{"env", "SECRET_KEY=a", "signing_key=b", "x", "monkey=c"}, []string{"env", "SECRET_KEY=[key]", "signing_key=[key]", "x", "monkey=c"}},
		{[]string{"psql", "postgres://me:a@b@host/db"}, []string{"psql", "postgres://me:[key]@host/db"}},
		{[]string{"curl", "-u", "me:a b", "-ume:p", "--user=me:p", "https://h:80/x"}, []string{"curl", "-u", "me:[key]", "-ume:[key]", "--user=me:[key]", "https://h:80/x"}},
		{[]string{"sh", "-c", "curl -u 'me:p' x; docker run -u 1000:1000 y"}, []string{"sh", "-c", "curl -u 'me:[key]' x; docker run -u 1000:1000 y"}},
		{[]string{"docker", "run", "-u", "1000:1000", "x"}, []string{"docker", "run", "-u", "1000:1000", "x"}},
		{[]string{"echo", "ghp_" + strings.Repeat("a", 36), "sk-proj-abcdefgh", "AKIAABCDEFGHIJKLMNOP"}, []string{"echo", "[key]", "[key]", "[key]"}},
		{[]string{"python3", "tokenize.py", "passwords.txt", "author"}, []string{"python3", "tokenize.py", "passwords.txt", "author"}},
		{[]string{"token", "x"}, []string{"token", "x"}},
	} {
		if got := redact.Args(c.in, []string{known, "abc"}); !slices.Equal(got, c.want) {
			t.Errorf("%q became %q, want %q", c.in, got, c.want)
		}
	}
}
