package redact_test

import (
	"math/rand/v2"
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
		{[]string{"curl", "-u", "me:hunter2", "https://a.example"}, []string{"curl", "-u", "me:[key]", "https://a.example"}},
		{[]string{"timeout", "5", "/usr/bin/curl", "-sSume:p w", "--user=me:x:y", "--proxy-user", "me:1"}, []string{"timeout", "5", "/usr/bin/curl", "-sSume:[key]", "--user=me:[key]", "--proxy-user", "me:[key]"}},
		{[]string{"tool", "--user", "me:hunter2", "--user", "1000:1000"}, []string{"tool", "--user", "me:[key]", "--user", "1000:1000"}},
		{[]string{"mysql", "-uroot", "-phunter2", "-P3306", "-p", "shop"}, []string{"mysql", "-uroot", "-p[key]", "-P3306", "-p", "shop"}},
		{[]string{"sshpass", "-p", "x", "ssh", "-p", "22", "me@host"}, []string{"sshpass", "-p", "[key]", "ssh", "-p", "22", "me@host"}},
		{[]string{"sh", "-c", `cd /a && curl -u "me:p w" https://a.example | sshpass -p 'x y' ssh h 'mysql -phunter2 shop'`}, []string{"sh", "-c", `cd /a && curl -u "me:[key]" https://a.example | sshpass -p [key] ssh h 'mysql -p[key] shop'`}},
		{[]string{"openssl", "rsa", "-passin", "pass:x", "-passout", "file:/a"}, []string{"openssl", "rsa", "-passin", "pass:[key]", "-passout", "file:/a"}},
		{[]string{"git", "clone", "https://me:p@ss@git.example/x.git", "https://git.example:8443/@scope/x"}, []string{"git", "clone", "https://me:[key]@git.example/x.git", "https://git.example:8443/@scope/x"}},
		{[]string{"curl", "-H", "Authorization: ApiKey a b, c", "-HAuthorization: Bearer x", "-H", "Cookie: sid=a; b=c", "-b", "sid=a"}, []string{"curl", "-H", "Authorization: [key]", "-HAuthorization: Bearer [key]", "-H", "Cookie: sid=[key]", "-b", "[key]"}},
		{[]string{"mysql -phunter2"}, []string{"mysql -p[key]"}},
		{[]string{"Authorization: Bearer short"}, []string{"Authorization: Bearer [key]"}},
		{[]string{"sh", "-c", `curl -H "Authorization: Digest username=a, response=b" https://a.example`}, []string{"sh", "-c", `curl -H "Authorization: [key]" https://a.example`}},
		{[]string{"docker", "run", "--user", "me:me", "-p", "80:80", "mysql"}, []string{"docker", "run", "--user", "me:me", "-p", "80:80", "mysql"}},
		{[]string{"docker", "login", "-u", "me", "-p", "x"}, []string{"docker", "login", "-u", "me", "-p", "[key]"}},
		{[]string{"curl", "-u", "abcdefghijklm:", "https://abcdefghijklm:@h.example", "https://abcdefghijklm:x-oauth-basic@h.example", "https://abcdefghijklmnopqrst@h.example/x", "https://me:@h.example"}, []string{"curl", "-u", "[key]", "https://[key]:@h.example", "https://[key]:x-oauth-basic@h.example", "https://[key]@h.example/x", "https://me:@h.example"}},
		{[]string{"psql", "postgres://me:a/b?c@host/db", "http://h:8080/a@b", "http://h:$PORT/@a", "http://[::1]:80/@a"}, []string{"psql", "postgres://me:[key]@host/db", "http://h:8080/a@b", "http://h:$PORT/@a", "http://[::1]:80/@a"}},
		{[]string{"wget", "--header=Authorization: ApiKey a", "--header=Cookie: sid=a; b=c"}, []string{"wget", "--header=Authorization: [key]", "--header=Cookie: sid=[key]"}},
		{[]string{"git", "-c", "http.extraheader=AUTHORIZATION: ApiKey a", "fetch"}, []string{"git", "-c", "http.extraheader=AUTHORIZATION: [key]", "fetch"}},
		{[]string{"curl", "-H", `Authorization: Digest username="a", response="b"`, "-H", `Cookie: a="b"; c="d"`, "-H", "X-Auth-Token: a b,c", "-H", "Accept: a b"}, []string{"curl", "-H", "Authorization: [key]", "-H", "Cookie: a=[key]", "-H", "X-Auth-Token: [key]", "-H", "Accept: a b"}},
		{[]string{"sh", "-c", `curl -H 'Authorization: Digest username="a", response="b"' -H "X-Api-Key: a,b" c`}, []string{"sh", "-c", `curl -H 'Authorization: [key]' -H "X-Api-Key: [key]" c`}},
		{[]string{"sh", "-c", `PASSWORD='it'\''s a' b; PASSWORD=c"d e" f; PASSWORD=g,h}i j; t --token $'k l' m; t --token 'n'\''o' p`}, []string{"sh", "-c", `PASSWORD=[key] b; PASSWORD=[key] f; PASSWORD=[key] j; t --token [key] m; t --token [key] p`}},
		{[]string{"sh", "-c", `ssh h "PASSWORD=\"a b\" c \"$D\""; bash -c "curl -u \"me:a b\" c"; bash -c 'PASSWORD='\''a b'\'' c'`}, []string{"sh", "-c", `ssh h "PASSWORD=[key] c \"$D\""; bash -c "curl -u \"me:[key]\" c"; bash -c 'PASSWORD=[key] c'`}},
		{[]string{"docker", "run", "-e", "PASSWORD=a b", "x"}, []string{"docker", "run", "-e", "PASSWORD=[key]", "x"}},
		{[]string{"sh", "-c", `docker run -e "PASSWORD=a b" x`}, []string{"sh", "-c", `docker run -e "PASSWORD=[key]" x`}},
		{[]string{"curl", "-d", "user=me&password=a,b;c&x=1", "https://h.example/a?sv=1&sig=b%2Fc&x=1"}, []string{"curl", "-d", "user=me&password=[key]&x=1", "https://h.example/a?sv=1&sig=[key]&x=1"}},
		{[]string{"sh", "-c", `curl -d 'user=me&password=a;b&x=1' c`}, []string{"sh", "-c", `curl -d 'user=me&password=[key]&x=1' c`}},
		{[]string{"env", "STRIPE_KEY=a", "KEY=b c", "make"}, []string{"env", "STRIPE_KEY=[key]", "KEY=[key]", "make"}},
		{[]string{"sh", "-c", "KEY=a make; SOME_KEY=b make; monkey=c"}, []string{"sh", "-c", "KEY=[key] make; SOME_KEY=[key] make; monkey=c"}},
		{[]string{"./bin/mysql", "-pabcd", "x"}, []string{"./bin/mysql", "-p[key]", "x"}},
		{[]string{"ssh-keygen", "-N", "a b", "-f", "k"}, []string{"ssh-keygen", "-N", "[key]", "-f", "k"}},
		{[]string{"openssl", "enc", "-k", "a", "-keyform", "pem"}, []string{"openssl", "enc", "-k", "[key]", "-keyform", "pem"}},
		{[]string{"aws", "configure", "set", "aws_secret_access_key", "a"}, []string{"aws", "configure", "set", "aws_secret_access_key", "[key]"}},
		{[]string{"tool", "--user", "password=a:b", "AccountName=a;AccountKey=b;x=y"}, []string{"tool", "--user", "password=[key]", "AccountName=a;AccountKey=[key];x=y"}},
	} {
		if got := redact.Args(c.in, []string{known, "abc"}); !slices.Equal(got, c.want) {
			t.Errorf("%q became %q, want %q", c.in, got, c.want)
		}
	}
}

// TestWhatIsNoSecretStaysReadable shows that commands made of plain words, in whatever order, are
// recorded unchanged.
func TestWhatIsNoSecretStaysReadable(t *testing.T) {
	plain := [][]string{{"ls", "-la"}, {"mkdir", "-p", "a/b"}, {"ssh", "-p", "22", "me@host"}, {"docker", "run", "-p", "80:80", "--user", "www:www", "img"}, {"sort", "-u", "a"},
		{"curl", "-u", "me", "-sSL", "-o", "x:y", "https://a.example:8443/p@1?a=b#c"}, {"git", "push", "-u", "origin", "a:b"}, {"unzip", "-p", "a.zip", "b:c"}, {"mysql", "-u", "root", "-p", "shop"},
		{"rsync", "me@host:/a:b", "."}, {"sudo", "-u", "me:me", "id"}, {"pip", "install", "a==1"}, {"git", "clone", "git@github.com:a/b.git"}, {"openssl", "rsa", "-passin", "env:X"},
		{"python3", "-c", "print('a: b', 1)"}, {"docker", "run", "--name", "mysql", "-p3306:3306", "img"}, {"echo", "author: me", "cookie: a"}, {"7z", "x", "a.7z"}, {"tar", "-xzf", "a.tgz"}, {"chown", "me:me", "a"},
		{"curl", "http://localhost:8080/@vite/client?x=1&y=2"}, {"curl", "http://localhost:$PORT/@vite/a"}, {"docker", "run", "-e", "A=b", "img"}, {"openssl", "req", "-keyout", "k.pem"}, {"git", "config", "--global", "user.name", "me"},
		{"npm", "config", "set", "registry", "https://r.example/"}, {"az", "webapp", "create", "-p", "plan"}, {"grep", "-r", "secret", "a"}, {"ssh", "ssh://git@h.example/x"}, {"wget", "--header=Accept: a"}, {"make", "MONKEY=a", "PRIMARY=b"}}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		argv := slices.Clone(plain[r.IntN(len(plain))])
		text := strings.Join(plain[r.IntN(len(plain))], " ") + []string{" && ", "; ", " | ", "\n"}[r.IntN(4)] + strings.Join(plain[r.IntN(len(plain))], " ")
		for _, c := range [][]string{argv, {"sh", "-c", text}, {"sh", "-c", `sh -c "` + text + `"`}} {
			if got := redact.Args(c, nil); !slices.Equal(got, c) {
				t.Fatalf("%q became %q", c, got)
			}
		}
	}
}

// TestWhatAnOptionGivesIsNoWhere shows that an option's secret value, of whatever letters, is in no
// recorded argument: neither when it is separate, nor attached, nor in the text of a shell with
// either kind of quotes.
func TestWhatAnOptionGivesIsNoWhere(t *testing.T) {
	forms := [][]string{{"curl", "-u", "me:§"}, {"curl", "-ume:§"}, {"curl", "--user", "me:§"}, {"curl", "--user=me:§"}, {"curl", "-sSu", "me:§"}, {"curl", "-U", "me:§"}, {"mysql", "-p§"}, {"mysqldump", "-uroot", "-p§", "shop"},
		{"sshpass", "-p", "§", "ssh", "h"}, {"sshpass", "-p§", "ssh", "h"}, {"redis-cli", "-a", "§"}, {"http", "-a", "me:§"}, {"zip", "-P", "§", "a.zip"}, {"curl", "-H", "Authorization: Bearer §"}, {"curl", "-H", "Authorization: §"},
		{"Authorization: Basic §"}, {"lftp", "-u", "me,§"}, {"docker", "login", "-p", "§"}, {"ldapsearch", "-w", "§"}, {"tool", "--user", "me:§"}, {"ssh-keygen", "-N", "§"}, {"wget", "--header=Authorization: ApiKey §"}, {"wget", "--header=Cookie: a=§"}, {"curl", "-H", "X-Auth-Token: §"}, {"env", "PASSWORD=§"}, {"docker", "run", "-e", "API_KEY=§", "x"}, {"tool", "--password", "§"}, {"git", "clone", "https://me:§@h.example/x"}}
	r := rand.New(rand.NewPCG(3, 4))
	const letters, odd = "abcXYZ0189_+=", "!#$%&*()[]{};<>?,|~^ @/:-."
	for range 4000 {
		form := forms[r.IntN(len(forms))]
		last := form[len(form)-1]
		secret := "Q"
		for range 1 + r.IntN(12) {
			from := letters
			if !strings.Contains(last, "://") && r.IntN(3) == 0 {
				from = odd
			}
			secret += string(from[r.IntN(len(from))])
		}
		secret += "Q"
		argv := slices.Clone(form)
		for i, a := range argv {
			argv[i] = strings.Replace(a, "§", secret, 1)
		}
		quoted := func(q string) string {
			out := make([]string, len(argv))
			for i, a := range argv {
				out[i] = q + a + q
			}
			return strings.Join(out, " ")
		}
		for _, c := range [][]string{argv, {"sh", "-c", "cd a; " + quoted("'")}, {"sh", "-c", "true && " + quoted(`"`) + " | cat"}} {
			if got := strings.Join(redact.Args(c, nil), "\n"); strings.Contains(got, secret) || strings.Contains(got, secret[1:]) {
				t.Fatalf("%q became %q", c, got)
			}
		}
	}
}
