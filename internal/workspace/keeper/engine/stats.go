package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"os"

	"choir.dev/choiros/internal/workspace/keeper/disk"
	"choir.dev/choiros/internal/workspace/keeper/wire"
)

// What the engine knows about the files that it has hashed is kept between starts, so that
// waking a computer does not read all of them. It only saves work: if the file is lost or
// damaged, everything is hashed once.

type savedStat struct {
	Path    wire.Path
	ID      string
	Chunked bool `json:",omitempty"`
	Stat    disk.Stat
}

const statsVersion = "choir stats 2\n"

// saveStats must be called with the lock held; the engine calls it when it closes.
func (e *Engine) saveStats() error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	for p, t := range e.scanner.Index.All() {
		if t.Stat == (disk.Stat{}) {
			continue
		}
		if err := enc.Encode(savedStat{wire.Path(p), t.ID, t.Chunked, t.Stat}); err != nil {
			return err
		}
	}
	sum := sha256.Sum256(buf.Bytes())
	return disk.WriteDurably(e.store.Work("stats"), append(append([]byte(statsVersion), sum[:]...), buf.Bytes()...))
}

func (e *Engine) loadStats() {
	raw, err := os.ReadFile(e.store.Work("stats"))
	n := len(statsVersion)
	if err != nil || len(raw) < n+sha256.Size || string(raw[:n]) != statsVersion {
		return
	}
	body := raw[n+sha256.Size:]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], raw[n:n+sha256.Size]) {
		return
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	for {
		var s savedStat
		if dec.Decode(&s) != nil {
			return
		}
		if t := e.scanner.Index.Leaf(string(s.Path)); t != nil && t.ID == s.ID && t.Chunked == s.Chunked && t.Mode == s.Stat.GitMode() {
			t.Stat = s.Stat
		}
	}
}
