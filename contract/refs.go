package contract

import "bytes"

// refPrefix begins every blob reference.
const refPrefix = "sha256:"

// Refs returns every blob reference that stands anywhere in an event's data,
// each once. It goes by form and not by field, so that no type, known to this
// build or not, can hold a blob that collection does not see.
func Refs(data []byte) []BlobRef {
	const length = len(refPrefix) + 64
	var out []BlobRef
	var seen map[BlobRef]bool
	for {
		at := bytes.Index(data, []byte(refPrefix))
		if at < 0 || len(data)-at < length {
			return out
		}
		ref := BlobRef(data[at : at+length])
		if ref.Validate() != nil {
			data = data[at+len(refPrefix):]
			continue
		}
		if seen == nil {
			seen = map[BlobRef]bool{}
		}
		if !seen[ref] {
			seen[ref] = true
			out = append(out, ref)
		}
		data = data[at+length:]
	}
}
