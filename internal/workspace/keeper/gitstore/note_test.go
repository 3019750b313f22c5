package gitstore

import "testing"

func FuzzDecodeNote(f *testing.F) {
	f.Add("x\n\nChoir-Kind: manual\nChoir-Seq: 1\nChoir-Restore: {}\n")
	f.Fuzz(func(t *testing.T, message string) {
		n := DecodeNote(message)
		again := DecodeNote(encodeNote(&n))
		if again.Kind != OneLine(n.Kind) || again.Seq != n.Seq || again.Verified != n.Verified {
			t.Errorf("%+v became %+v", n, again)
		}
	})
}
