//go:build embedguest || embedreader

package image

import _ "embed"

//go:embed payload/choir-reader.zst
var reader string
