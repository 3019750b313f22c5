package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// SignedIn is the account that a sign-in link was for, and a new API token of it.
type SignedIn struct {
	URL     string       `json:"url"` // of the control plane
	Account view.Account `json:"account"`
	Token   view.Token   `json:"token"`
}

// SignIn uses a one-time sign-in link up, as the claim page does, makes an API token with
// the session that it gets, and ends the session.
func SignIn(ctx context.Context, link, name string) (in SignedIn, err error) {
	const op = "client.SignIn"
	u, err := url.Parse(link)
	if err != nil || u.Path != "/claim" || u.Fragment == "" || !hostForm().MatchString(u.Host) {
		// The link is as good as a password, so it is not repeated in the error.
		return in, fault.New(op, fault.Invalid, "It is what choir accounts invite NAME prints: http://console.…/claim#….", errors.New("this is not a sign-in link"))
	}
	c, err := New(u.Scheme+"://"+u.Host, "", "")
	if err != nil {
		return in, err
	}
	defer c.Close()
	body, err := json.Marshal(map[string]string{"token": u.Fragment})
	if err != nil {
		return in, fault.Wrap(op, err)
	}
	res, err := c.do(ctx, request{method: http.MethodPost, path: claimPath, body: strings.NewReader(string(body)), content: "application/json"})
	if err != nil {
		return in, err
	}
	for _, k := range res.Cookies() {
		if k.Value != "" && c.session == nil {
			c.session = k
		}
	}
	if err := res.Body.Close(); err != nil || c.session == nil {
		return in, fault.New(op, fault.Unreachable, "Have another link made.", errors.Join(err, fmt.Errorf("%s signs nobody in", c.base)))
	}
	defer func() { // the session was only needed for this
		out, oerr := c.do(context.WithoutCancel(ctx), request{method: http.MethodPost, path: "/signout"})
		if oerr == nil {
			oerr = out.Body.Close()
		}
		err = errors.Join(err, fault.Wrap(op, oerr))
	}()
	in.URL = c.base
	if in.Account, err = c.Account(ctx); err != nil {
		return in, err
	}
	ask := rpc.NewTokenRequest{}
	ask.Body.Name = name
	if in.Token, err = Call(ctx, c, rpc.TokenCreate, ask); err == nil && !tokenForm().MatchString(in.Token.Secret) {
		in.Token.Secret = ""
		err = fault.New(op, fault.Unreachable, "Use links of people you trust alone.", fmt.Errorf("what %s gives is no token", c.base))
	}
	return in, err
}

// The address and the token are printed for a shell. Whoever made the link chose which
// server answers, so both must be words that a shell does not interpret.
var (
	hostForm  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9.:\[\]-]{1,300}$`) })
	tokenForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,200}$`) })
)
