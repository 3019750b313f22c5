// Package desktop carries the shell inside the binary: the source that becomes
// choiros/ in a new computer, and the build of it that paints first.
package desktop

import (
	"embed"
	"io/fs"
)

//go:embed .npmrc index.html package.json package-lock.json tsconfig.json eslint.config.js vite.config.ts
//go:embed all:src all:vite all:public all:test
var source embed.FS

//go:embed all:dist
var dist embed.FS

// Source is the tree of choiros/ as a new computer gets it. It holds no
// node_modules: the host provides that from package-lock.json.
func Source() fs.FS { return source }

// Build is the site that `npm run build` made of Source, with index.html at
// its root. It reports false when the binary was built without one.
func Build() (fs.FS, bool) {
	site, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, false
	}
	_, err = fs.Stat(site, "index.html")
	return site, err == nil
}
