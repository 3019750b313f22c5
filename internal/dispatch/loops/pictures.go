package loops

import (
	"bytes"
	"context"
	"fmt"
	"image"
	_ "image/gif" // what is a picture, its header says
	_ "image/jpeg"
	_ "image/png"
	"net/http"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/dispatch/ports"
	"choir.dev/choiros/internal/tool"
)

// Bounds of what a model is shown of one call. Services refuse pictures that are longer or wider.
const (
	maxPictures = 4
	maxPicture  = 3_000_000 // bytes
	maxSide     = 8000      // pixels
)

// KeepPictures keeps the pictures of a result as blobs of the computer and names them in it. What is none, by
// its first bytes, is told and left out: a box may have run agents' code.
func KeepPictures(ctx context.Context, blobs ports.Blobs, cid contract.CID, res *tool.Result) error {
	pictures := res.Pictures
	res.Pictures = nil
	for i, p := range pictures {
		media, said := isPicture(p)
		if i >= maxPictures {
			said = fmt.Sprintf("at most %d pictures are shown at once", maxPictures)
		}
		if said != "" {
			res.Output += "\n(a picture is not shown: " + said + ")"
			continue
		}
		ref, size, err := blobs.Put(ctx, cid, bytes.NewReader(p))
		if err != nil {
			return err
		}
		res.Images = append(res.Images, contract.Image{Media: media, Ref: ref, Bytes: size})
	}
	return nil
}

// isPicture returns the type of a picture that models are shown, or why it is none.
func isPicture(p []byte) (media, why string) {
	if len(p) > maxPicture {
		return "", fmt.Sprintf("it has %d bytes; at most %d are shown", len(p), maxPicture)
	}
	media = http.DetectContentType(p)
	switch media {
	case "image/webp": // its service reads its header
		return media, ""
	case "image/png", "image/jpeg", "image/gif":
	default:
		return "", "it is neither PNG, JPEG, GIF nor WebP"
	}
	c, _, err := image.DecodeConfig(bytes.NewReader(p))
	switch {
	case err != nil:
		return "", "it is damaged"
	case c.Width < 1 || c.Height < 1 || c.Width > maxSide || c.Height > maxSide:
		return "", fmt.Sprintf("it has %d × %d pixels; at most %d × %d are shown, so make a smaller one of it", c.Width, c.Height, maxSide, maxSide)
	}
	return media, ""
}
