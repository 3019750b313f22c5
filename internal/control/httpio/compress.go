package httpio

import (
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
)

// Compressor serves text files with gzip or zstd compression if the browser accepts it.
// Pages are never compressed: each contains a nonce, which the compressed length could
// reveal.
type Compressor func(http.Handler) http.HandlerFunc

// NewCompressor makes a compressor.
func NewCompressor() (Compressor, error) {
	wrap, err := gzhttp.NewWrapper(
		gzhttp.MinSize(1024), gzhttp.CompressionLevel(9),
		gzhttp.EnableZstd(true), gzhttp.PreferZstd(true), gzhttp.ZstdCompressionLevel(4),
		gzhttp.ContentTypeFilter(func(t string) bool {
			t, _, _ = strings.Cut(t, ";")
			return strings.HasPrefix(t, "text/") || t == "application/json" || t == "image/svg+xml" || t == "application/wasm"
		}),
	)
	return wrap, err
}

// Serve lets serve write one file, and compresses it.
func (z Compressor) Serve(w http.ResponseWriter, r *http.Request, serve func(http.ResponseWriter)) {
	if r.Header.Get("Range") != "" || r.Header.Get("Upgrade") != "" {
		serve(w)
		return
	}
	z(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { serve(w) })).ServeHTTP(w, r)
}
