package control

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/control/httpio"
	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/grant"
	"choir.dev/choiros/internal/identity"
	"choir.dev/choiros/internal/rpc"
	"choir.dev/choiros/internal/view"
)

// gitPath is where repositories are served: those in a workspace at /git/{computer}/{path}.git, and the
// history of the computer's own files at /git/{computer}.git.
const gitPath = "/git/"

// gitAddress returns a repository's path on the server.
func gitAddress(cid contract.CID, repository string) string {
	at := url.URL{Path: gitPath + string(cid) + ".git"}
	if repository != "" {
		at.Path = gitPath + string(cid) + "/" + strings.TrimSuffix(repository, ".git") + ".git"
	}
	return at.EscapedPath()
}

// gitToken makes a token for one repository that the caller may use.
func (s *Server) gitToken(ctx context.Context, who rpc.Caller, in rpc.GitTokenRequest) (view.GitAccess, error) {
	if in.Body.Write {
		if err := needs(who.Actor, contract.CanWrite); err != nil {
			return view.GitAccess{}, err
		}
	}
	c, err := s.options.Computers.Get(ctx, who.Computer)
	if err != nil {
		return view.GitAccess{}, err
	}
	repository, err := c.Repository(ctx, in.Body.Repository)
	if err != nil {
		return view.GitAccess{}, err
	}
	if repository != "" {
		// A token is made only for what git could open, which a folder that is no repository is not.
		// Protocol 2 is asked for because its answer does not grow with the number of refs.
		look := view.GitCall{Repository: repository, Advertise: true, Protocol: 2, By: who.Actor}
		if err := c.Git(ctx, look, http.NoBody, io.Discard); err != nil {
			return view.GitAccess{}, err
		}
	}
	parent := ""
	if caller := callerOf(ctx); !caller.machine {
		parent = caller.token
	}
	k, secret, err := s.options.Identity.NewGitToken(ctx, who.Actor.Account(), parent, in.Body.Name, identity.GitScope{
		Computer: who.Computer, Repository: repository, Write: in.Body.Write, Expires: s.options.Now().Add(time.Duration(in.Body.Days) * 24 * time.Hour),
	})
	if err != nil {
		return view.GitAccess{}, err
	}
	out := view.GitAccess{Path: gitAddress(who.Computer, repository), Repository: repository, Token: tokenView(k)}
	out.Token.Secret = secret
	return out, nil
}

// tokenView returns a token as its owner sees it.
func tokenView(k identity.Token) view.Token {
	v := view.Token{ID: k.ID, Name: k.Name, Created: k.Created, Machine: k.Machine, May: k.May}
	if !k.Expires.IsZero() {
		v.Expires = &k.Expires
	}
	if k.Git != nil {
		v.Git = &view.GitScope{Computer: k.Git.Computer, Repository: k.Git.Repository, Write: k.Git.Write, Expires: k.Git.Expires}
	}
	return v
}

// gitAsked is what the address of a request from git names.
type gitAsked struct {
	computer, repository string
	call                 view.GitCall
}

// askedOfGit parses a request's address; ok is false when git does not send such requests.
func askedOfGit(r *http.Request) (a gitAsked, ok bool) {
	name := strings.TrimPrefix(r.URL.Path, gitPath)
	switch {
	case strings.HasSuffix(name, "/info/refs") && r.Method == http.MethodGet:
		name = strings.TrimSuffix(name, "/info/refs")
		service := r.URL.Query().Get("service")
		a.call.Advertise, a.call.Push = true, service == "git-receive-pack"
		ok = a.call.Push || service == "git-upload-pack"
	case strings.HasSuffix(name, "/git-upload-pack") && r.Method == http.MethodPost:
		name, ok = strings.TrimSuffix(name, "/git-upload-pack"), true
	case strings.HasSuffix(name, "/git-receive-pack") && r.Method == http.MethodPost:
		name, a.call.Push, ok = strings.TrimSuffix(name, "/git-receive-pack"), true, true
	}
	if !a.call.Push {
		switch r.Header.Get("Git-Protocol") {
		case "version=2":
			a.call.Protocol = 2
		case "version=1":
			a.call.Protocol = 1
		}
	}
	var nested bool
	if a.computer, a.repository, nested = strings.Cut(name, "/"); !nested {
		a.computer = strings.TrimSuffix(a.computer, ".git")
	}
	return a, ok && a.computer != "" && (!nested || a.repository != "")
}

// serveGit answers the git program. Errors are plain text, which git prints.
func (s *Server) serveGit(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	tw := &httpio.Answer{ResponseWriter: w}
	err := s.git(tw, r)
	if err == nil || r.Context().Err() != nil {
		return
	}
	if tw.Started {
		s.log.Debug("stream cut off", "request", "git", "error", err)
		panic(http.ErrAbortHandler) // so that the client does not take what it has received for the whole answer
	}
	p := problem.Of(s.log, "git", err)
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Basic realm="choir", charset="UTF-8"`)
	}
	said := strings.TrimSpace(p.Detail + ". " + p.Hint)
	if strings.HasSuffix(r.URL.Path, "/git-upload-pack") && p.Status != http.StatusUnauthorized {
		// When the status is not 200, git prints only its number; the protocol's own error line is
		// printed whole.
		h.Set("Content-Type", "application/x-git-upload-pack-result")
		said = "ERR " + said
		_, _ = fmt.Fprintf(w, "%04x%s", len(said)+4, said) // the client has gone if this fails
		return
	}
	h.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(p.Status)
	_, _ = io.WriteString(w, said+"\n") // as above
}

func (s *Server) git(w http.ResponseWriter, r *http.Request) error {
	if gitFromPage(r) {
		return problem.Refuse(http.StatusForbidden, fault.Denied, "this is for git, not for pages", "")
	}
	c, scope, err := s.gitCaller(r)
	if err != nil {
		return err
	}
	asked, ok := askedOfGit(r)
	if !ok {
		return problem.Refuse(http.StatusNotFound, fault.NotFound, "there is nothing here", "The address of a repository is "+gitPath+"COMPUTER/PATH.git; choir git url prints it.")
	}
	ctx, release, err := s.hold(context.WithValue(r.Context(), callerKey{}, c), holderOf(c), func(ctx context.Context) (contract.CID, error) {
		return s.gitReach(ctx, c, &asked, scope)
	})
	if err != nil {
		return err
	}
	defer release()
	cid := contract.CID(asked.computer)
	computer, err := s.options.Computers.Get(ctx, cid)
	if err != nil {
		return err
	}
	if asked.call.Repository, err = computer.Repository(ctx, asked.repository); err != nil {
		return err
	}
	if err := inScope(scope, asked); err != nil {
		return err
	}
	body, err := gitBody(r, s.options.AddBytes)
	if err != nil {
		return err
	}
	kind := "-result"
	if asked.call.Advertise {
		kind = "-advertisement"
	}
	w.Header().Set("Content-Type", "application/x-"+asked.call.Service()+kind)
	return problem.TooLargeTo(computer.Git(ctx, asked.call, body, &flushed{httpio.Deadlined(w), http.NewResponseController(w)}),
		fmt.Sprintf("the push has more than %d MiB", s.options.AddBytes>>20), "Raise storage.add_mb, or push fewer commits at once.")
}

// gitFromPage reports whether a page in a browser sent a request. It is refused because browsers may
// remember the password that a person typed for git.
func gitFromPage(r *http.Request) bool {
	if defence.Off(defence.GitPages) {
		return false
	}
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" || len(r.Header.Values("Authorization")) > 1
}

// gitCaller returns the holder of the token that git sends as the password. scope is nil for an API
// token, which allows what its account may do.
func (s *Server) gitCaller(r *http.Request) (caller, *identity.GitScope, error) {
	_, secret, ok := r.BasicAuth()
	if !ok || secret == "" {
		return caller{}, nil, problem.Refuse(http.StatusUnauthorized, fault.Denied, "a token is required as the password", "choir git url makes one; any name will do.")
	}
	t, err := s.options.Identity.GitToken(r.Context(), secret)
	if fault.Is(err, fault.Denied) {
		said := view.Describe(err)
		return caller{}, nil, problem.Refuse(http.StatusUnauthorized, fault.Denied, said.Detail, said.Hint)
	}
	if err != nil {
		return caller{}, nil, err
	}
	return callerWith(t, r), t.Git, nil
}

// gitReach returns the computer that a request names if the caller may use it so: reading takes what a
// viewer may do, pushing what an editor may.
func (s *Server) gitReach(ctx context.Context, c caller, asked *gitAsked, scope *identity.GitScope) (contract.CID, error) {
	if err := s.present(ctx, c); err != nil {
		return "", err
	}
	if scope != nil && asked.computer == only {
		asked.computer = string(scope.Computer)
	}
	if scope != nil && contract.CID(asked.computer) != scope.Computer && !defence.Off(defence.GitScope) {
		return "", grant.NoComputer()
	}
	takes := contract.CanRead
	if asked.call.Push {
		takes = contract.CanWrite
		if scope != nil && !scope.Write && !defence.Off(defence.GitWrite) {
			return "", problem.Refuse(http.StatusForbidden, fault.Denied, "this token is for reading", "Make one that may push: choir git url --write")
		}
	}
	cid, who, err := s.named(ctx, c, asked.computer)
	if err == nil {
		err = needs(who, takes)
	}
	if err != nil {
		return "", err
	}
	asked.call.By = who
	asked.computer = string(cid)
	if asked.call.Push && !asked.call.Advertise {
		return cid, s.take(ctx, cid, s.quota.Take)
	}
	return cid, nil
}

// inScope refuses every repository but the one that a token was made for, with the same error as for one
// that does not exist.
func inScope(scope *identity.GitScope, asked gitAsked) error {
	if scope == nil || scope.Repository == asked.call.Repository || defence.Off(defence.GitScope) {
		return nil
	}
	return fault.New("", fault.NotFound, "Name the folder that the repository is in, such as workspace/NAME.", errors.New("there is no such repository"))
}

// gitBody returns the request's body, decompressed if git compressed it.
func gitBody(r *http.Request, most int64) (io.Reader, error) {
	switch r.Header.Get("Content-Encoding") {
	case "":
		return httpio.Limit(r.Body, most), nil
	case "gzip", "x-gzip":
		plain, err := gzip.NewReader(httpio.Limit(r.Body, most))
		if err != nil {
			return nil, &contract.FieldError{Field: "body", Reason: "is not what gzip makes"}
		}
		return httpio.Limit(plain, most), nil
	}
	return nil, problem.Refuse(http.StatusUnsupportedMediaType, fault.Invalid, "the body is compressed in a way that is not known here", "")
}

// flushed flushes after each write, so that a client who waits for a large answer sees progress.
type flushed struct {
	io.Writer
	controller *http.ResponseController
}

func (f *flushed) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err == nil {
		err = f.controller.Flush()
	}
	return n, err
}
