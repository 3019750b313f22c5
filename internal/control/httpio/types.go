package httpio

import (
	"mime"
	"path"
	"strings"
)

// AssetTypes maps the extensions of a page's files to content types. It is used instead of
// the machine's own table, which differs from machine to machine.
var AssetTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg",
	".webp": "image/webp", ".gif": "image/gif", ".ico": "image/x-icon", ".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf",
	".json": "application/json", ".map": "application/json", ".wasm": "application/wasm", ".txt": "text/plain; charset=utf-8",
	".webmanifest": "application/manifest+json",
}

func AssetType(name string) string {
	if t, ok := AssetTypes[strings.ToLower(path.Ext(name))]; ok {
		return t
	}
	return "application/octet-stream"
}

// IsHTML reports whether a Content-Type is a page's.
func IsHTML(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == "text/html" || t == "application/xhtml+xml")
}
