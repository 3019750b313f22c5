package client_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"choir.dev/choiros/internal/client"
)

// TestSignInTakesATokenOnly: whoever made the link chose the server, and the server's answer is
// printed for a shell, so only a well-formed token is accepted.
func TestSignInTakesATokenOnly(t *testing.T) {
	for secret, ok := range map[string]bool{
		"choir_AZaz09-_": true, "x; touch pwned": false, "$(touch pwned)": false, "x\ntouch pwned": false, "choir_x\n": false, "`touch pwned`": false, "": false, strings.Repeat("x", 300): false,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/api/claim":
				http.SetCookie(w, &http.Cookie{Name: "s", Value: "v"})
			case strings.HasSuffix(r.URL.Path, "/tokens"):
				_ = json.NewEncoder(w).Encode(map[string]any{"id": "t", "secret": secret})
			case strings.HasSuffix(r.URL.Path, "/account"):
				_ = json.NewEncoder(w).Encode(map[string]any{"id": "u"})
			}
		}))
		in, err := client.SignIn(t.Context(), srv.URL+"/claim#link", "test")
		srv.Close()
		if (err == nil) != ok || !ok && in.Token.Secret != "" || ok && in.Token.Secret != secret {
			t.Errorf("%q: %+v, %v", secret, in.Token, err)
		}
	}
	for _, host := range []string{"a$(id).example", "a;id", "[::1%25$(id)]", "a'b"} {
		if _, err := client.SignIn(t.Context(), "http://"+host+"/claim#link", "test"); err == nil || !strings.Contains(err.Error(), "not a sign-in link") {
			t.Errorf("%s: %v", host, err)
		}
	}
}
