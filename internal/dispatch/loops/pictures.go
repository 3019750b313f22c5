package loops

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"image"
	_ "image/gif" // what is a picture, its header says
	_ "image/jpeg"
	_ "image/png"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/harness"
	"choir.dev/choiros/internal/tool"
)

// Bounds of what a model is shown of one call. Services refuse pictures that are longer or wider.
const (
	maxPictures = 4
	maxPicture  = 3_000_000 // bytes
	maxSide     = 8000      // pixels
)

// KeepPictures keeps the pictures of a result as blobs of the computer and names them in it. What is none, by
// its first bytes, or can't be kept is told and left out: a box may have run agents' code. Only the end of ctx
// is an error.
func KeepPictures(ctx context.Context, blobs ports.Blobs, cid contract.CID, res *tool.Result) error {
	pictures := res.Pictures
	res.Pictures = nil
	if !res.OK {
		if len(pictures) > 0 {
			res.Output += "\n(pictures of a failed call are not shown)" // services take none
		}
		return nil
	}
	more := len(pictures) - maxPictures
	for _, p := range pictures[:min(len(pictures), maxPictures)] {
		media, said := isPicture(p)
		if said == "" {
			ref, size, err := blobs.Put(ctx, cid, bytes.NewReader(p))
			switch {
			case err == nil:
				res.Images = append(res.Images, contract.Image{Media: media, Ref: ref, Bytes: size})
				continue
			case ctx.Err() != nil:
				return err
			}
			said = "it can't be kept: " + harness.Clip(fault.Text(err), 300) // its call was made, and is not made again
		}
		res.Output += "\n(a picture is not shown: " + said + ")"
	}
	if more > 0 {
		res.Output += fmt.Sprintf("\n(%d more are not shown; at most %d are at once)", more, maxPictures)
	}
	return nil
}

// isPicture returns the type of a picture that models are shown, or why it is none.
func isPicture(p []byte) (media, why string) {
	if len(p) > maxPicture {
		return "", fmt.Sprintf("it has %d bytes; at most %d are shown", len(p), maxPicture)
	}
	media = http.DetectContentType(p)
	var c image.Config
	var err error
	switch media {
	case "image/webp":
		c.Width, c.Height = sizeOfWebP(p)
	case "image/png", "image/jpeg", "image/gif":
		c, _, err = image.DecodeConfig(bytes.NewReader(p))
	default:
		return "", "it is neither PNG, JPEG, GIF nor WebP"
	}
	switch {
	case err != nil || c.Width < 1 || c.Height < 1:
		return "", "it can't be read"
	case c.Width > maxSide || c.Height > maxSide:
		return "", fmt.Sprintf("it has %d × %d pixels; at most %d × %d are shown, so make a smaller one of it", c.Width, c.Height, maxSide, maxSide)
	}
	return media, ""
}

// sizeOfWebP reads the first chunk of a WebP (RFC 9649), of whichever of its three kinds; 0 means none.
func sizeOfWebP(p []byte) (width, height int) {
	if len(p) < 30 {
		return 0, 0
	}
	le := binary.LittleEndian
	switch string(p[12:16]) {
	case "VP8 ":
		return int(le.Uint16(p[26:]) & 0x3fff), int(le.Uint16(p[28:]) & 0x3fff)
	case "VP8L":
		bits := le.Uint32(p[21:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1
	case "VP8X":
		return int(le.Uint32(p[24:])&0xffffff) + 1, int(le.Uint32(p[26:])>>8) + 1
	}
	return 0, 0
}
