//go:build !embedguest

package image

var payload, reader string
