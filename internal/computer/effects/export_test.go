package effects

import (
	"context"

	"choir.dev/choiros/contract"
)

// Text is what is shown of a blob.
func (a Effects) Text(ctx context.Context, ref contract.BlobRef) (string, error) {
	return a.text(ctx, ref)
}
