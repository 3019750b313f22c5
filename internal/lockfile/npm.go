package lockfile

import (
	"encoding/json"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"choir.dev/choiros/internal/defence"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/lazy"
)

// npmEntry is a package in a lock file. Its keys are compared exactly: encoding/json would
// take "Resolved" for "resolved", which npm does not, so that something else would be
// checked than is installed.
type npmEntry map[string]any

func (e npmEntry) text(key string) string { s, _ := e[key].(string); return s }
func (e npmEntry) is(key string) bool     { b, _ := e[key].(bool); return b }

// npm reads package-lock.json of version 2 or 3, and the manifests of the project and of
// the folders that the lock file links to.
func (r *reading) npm() error {
	raw, err := r.lock()
	if err != nil {
		return err
	}
	var top map[string]any
	if err := json.Unmarshal(raw, &top); err != nil {
		return invalid("%s is no JSON: %w", r.parsed.Name, err)
	}
	version, _ := top["lockfileVersion"].(float64)
	packages, ok := top["packages"].(map[string]any)
	if version < 2 || version > 3 || !ok {
		return invalid("%s is not of version 2 or 3; npm install writes it anew", r.parsed.Name)
	}
	if _, err := r.file("package.json", maxManifest); err != nil {
		return err
	}
	folders := map[string]bool{}
	r.parsed.entries = map[string]npmEntry{}
	for _, key := range slices.Sorted(maps.Keys(packages)) {
		e, ok := packages[key].(map[string]any)
		if !ok {
			return invalid("%s: the entry %q is no object", r.parsed.Name, clip(key))
		}
		r.parsed.entries[key] = e
		if key == "" {
			continue
		}
		folder, ours, err := r.npmEntry(key, e)
		if err != nil {
			return err
		}
		if ours {
			if _, err := r.file(path.Join(key, "package.json"), maxManifest); err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
			continue
		}
		folders[folder] = true
	}
	r.parsed.Folders = slices.Sorted(maps.Keys(folders))
	return r.npmrc()
}

// npmEntry checks an entry and returns the folder whose node_modules contains it; ours is
// set for a folder of the workspace.
func (r *reading) npmEntry(key string, e npmEntry) (folder string, ours bool, err error) {
	before, _, inside := strings.Cut("/"+key, "/node_modules/")
	if folder, err = r.in(path.Join(".", strings.TrimPrefix(before, "/"))); err != nil {
		return "", false, err
	}
	if !inside {
		return folder, true, nil
	}
	if path.Clean(key) != key || strings.HasPrefix(key, "/") {
		return "", false, invalid("%s names %q", r.parsed.Name, clip(key))
	}
	if e.is("link") {
		_, err := r.in(e.text("resolved"))
		return folder, false, err
	}
	r.parsed.Packages++
	if e.is("hasInstallScript") {
		r.parsed.Scripts++
	}
	if defence.Off(defence.LockHashes) {
		return folder, false, nil
	}
	return folder, false, r.npmSource(key, e)
}

// npmSource checks where an entry's package comes from. npm has four ways to specify that,
// and for addresses that it takes for git repositories it checks no hash.
func (r *reading) npmSource(key string, e npmEntry) error {
	for k := range e {
		if strings.HasPrefix(k, "_") { // npm uses "_resolved" if "resolved" is missing
			return invalid("%s has %q in the entry of %s, which npm writes in no lock", r.parsed.Name, clip(k), clip(key))
		}
	}
	if e["hasShrinkwrap"] != nil {
		r.parsed.Own = "a package in it brings a lock of its own"
	}
	from, there := e["resolved"]
	if v, ok := e["version"]; ok && !there { // npm treats it like a version in a manifest, which may be an address
		if s, _ := v.(string); !npmVersion().MatchString(s) {
			return invalid("%s takes %s from %q; only packages of a registry, over https, are installed for a check", r.parsed.Name, clip(key), clip(s))
		}
	}
	if e.is("inBundle") && !there && strings.Count("/"+key, "/node_modules/") > 1 {
		return nil // it is part of the package that contains it, whose hash covers it
	}
	if there {
		s, _ := from.(string)
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || !archive().MatchString(u.Path) && gitHosts().MatchString(u.Hostname()) {
			return invalid("%s takes %s from %q; only packages of a registry, over https, are installed for a check", r.parsed.Name, clip(key), clip(s))
		}
		if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
			r.parsed.Own = "an address in it may hold a secret"
		}
	}
	if !integrity().MatchString(e.text("integrity")) {
		return invalid("%s holds no hash of %s", r.parsed.Name, clip(key))
	}
	return nil
}

// npmVersion matches a version number, and nothing else by which a manifest may name a
// package.
var npmVersion = lazy.Regexp(`^[0-9]+\.[0-9]+\.[0-9]+(?:[-+][0-9A-Za-z.+-]*)?$`)

// gitHosts matches hosts whose https addresses npm takes for git repositories, except
// addresses of archives, which archive matches.
var (
	gitHosts = lazy.Regexp(`(?i)^(?:www\.)?(?:github\.com|gist\.github\.com|gitlab\.com|bitbucket\.org|git\.sr\.ht)\.?$`)
	archive  = lazy.Regexp(`^/[^/]+/[^/]+/(?:-/archive|archive|releases/download)/.+`)
)

var integrity = lazy.Regexp(`^sha(?:1|256|384|512)-[A-Za-z0-9+/]+={0,2}(?: sha(?:1|256|384|512)-[A-Za-z0-9+/]+={0,2})*$`)

// npmSettings are the settings that are taken over from a project's .npmrc: those about the
// layout of its tree. A project may not choose where packages come from or what npm runs.
var npmSettings = []string{"legacy-peer-deps", "strict-peer-deps", "install-strategy", "install-links", "omit", "include", "prefer-dedupe"}

func (r *reading) npmrc() error {
	b, err := r.file(".npmrc", maxManifest)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var kept strings.Builder
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(line, "=")
		if slices.Contains(npmSettings, strings.TrimSuffix(strings.TrimSpace(key), "[]")) && !strings.Contains(value, "$") {
			kept.WriteString(strings.TrimRight(line, "\r\n") + "\n")
		}
	}
	r.parsed.Files[path.Join(r.parsed.Dir, ".npmrc")] = []byte(kept.String())
	return nil
}
