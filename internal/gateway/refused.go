package gateway

import (
	"sync"

	"choir.dev/choiros/contract"
)

// refusedPictures are those that were new in a request which a model's service refused, and took without them. They are not
// sent to it again, for they stay in their conversation; one that is innocent may be among them, if it came with another.
type refusedPictures struct {
	mu      sync.Mutex
	refused map[pictureOf]bool // false: it was taken
}

type pictureOf struct {
	model string
	ref   contract.BlobRef
}

// maxRefused bounds how many are known; then all are forgotten, and refused once more.
const maxRefused = 4096

func (r *refusedPictures) note(model string, pictures []contract.BlobRef) {
	r.set(model, pictures, true)
}

// took notes pictures that a service took, which are not to blame for a later refusal.
func (r *refusedPictures) took(model string, pictures []contract.BlobRef) {
	r.set(model, pictures, false)
}

func (r *refusedPictures) set(model string, pictures []contract.BlobRef, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refused == nil || len(r.refused) > maxRefused {
		r.refused = map[pictureOf]bool{}
	}
	for _, ref := range pictures {
		if _, known := r.refused[pictureOf{model, ref}]; !known {
			r.refused[pictureOf{model, ref}] = refused
		}
	}
}

func (r *refusedPictures) has(model string, ref contract.BlobRef) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused[pictureOf{model, ref}]
}
