package devserver

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"choir.dev/choiros/internal/control/problem"
	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
)

// ViteCache is the dev server's cache directory in a desktop box (CHOIR_VITE_CACHE). The
// bundled dependencies in it are the only files outside the desktop's source that may be
// asked for, through /@fs.
const ViteCache = "/tmp/vite"

var (
	// plainPath matches paths of a desktop's files before decoding: percent escapes only
	// of harmless bytes, no backslash, no fragment.
	plainPath = lazy.Regexp(`^/(?:[A-Za-z0-9_@~.,+=:()!$&'*;/-]|%20|%5B|%5D|%40|%2B|%C3%[89AB][0-9A-F])*$`)
	cachePath = lazy.Regexp(`^/@fs` + regexp.QuoteMeta(ViteCache) + `/deps/[A-Za-z0-9_@.-]+\.(js|mjs|css|map)$`)
	innerPath = lazy.Regexp(`^/@(?:vite/(?:client|env)|react-refresh|id/__x00__[A-Za-z0-9_@][A-Za-z0-9_@:.-]*(?:/[A-Za-z0-9_@:.-]+)*)$`)
	viteValue = lazy.Regexp(`^[A-Za-z0-9_.-]{0,128}$`)
)

// viteQuery lists the query keys that the dev server's own client sends.
var viteQuery = map[string]bool{
	"t": true, "v": true, "import": true, "raw": true, "url": true, "inline": true, "worker": true, "worker_file": true,
	"type": true, "direct": true, "html-proxy": true, "index": true, "token": true, "init": true,
}

// CheckPath refuses, before a file is read, paths that a desktop's own page never asks for:
// other files of the box through /@fs or /@id, escapes that are decoded twice, dot files,
// and queries that have misled the dev server's checks before.
func CheckPath(r *http.Request) *problem.Error {
	if defence.Off(defence.ControlPaths) {
		return nil
	}
	no := problem.Refuse(http.StatusForbidden, fault.Denied, "this is no file of the desktop", "")
	raw, query, _ := strings.Cut(r.RequestURI, "?")
	if len(raw) > 2048 || !plainPath().MatchString(raw) || strings.Contains(raw, "//") {
		return no
	}
	p := r.URL.Path
	if decoded, err := url.PathUnescape(raw); err != nil || decoded != p {
		return no
	}
	dependency := cachePath().MatchString(p)
	for i, segment := range strings.Split(p[1:], "/") {
		if segment == ".vite" && strings.HasPrefix(p, "/node_modules/.vite/") && i == 1 {
			continue
		}
		if !dependency && hidden(segment) || segment == ".." || segment == "." {
			return no
		}
	}
	switch {
	case strings.HasPrefix(p, "/@"):
		if !dependency && !innerPath().MatchString(p) {
			return no
		}
	case strings.HasPrefix(p, "/__"), strings.Contains(strings.ToLower(p), "/@fs"), strings.Contains(p, "/@id"):
		return no
	}
	return checkQuery(query)
}

func checkQuery(query string) *problem.Error {
	no := problem.Refuse(http.StatusForbidden, fault.Denied, "this is no query of the desktop", "")
	if query == "" {
		return nil
	}
	if len(query) > 512 {
		return no
	}
	for _, pair := range strings.Split(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		// The key is compared without decoding: none of the known keys needs an escape,
		// and "import?" is not one of them.
		if !viteQuery[key] || !viteValue().MatchString(value) {
			return no
		}
	}
	return nil
}
