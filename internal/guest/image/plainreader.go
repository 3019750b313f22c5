//go:build !embedguest && !embedreader

package image

var reader string
