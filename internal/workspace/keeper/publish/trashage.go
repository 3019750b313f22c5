package publish

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/disk"
)

// trashFor is for how long the trash keeps things, by its own age.
const trashFor = 7 * 24 * time.Hour

// trashAge is how old the trash is: the time in which there was an engine, and of
// the time in between at most a day at once. A clock that is put forward, or was
// behind and is put right, ages nothing, so that nobody's removed work goes with it.
type trashAge struct {
	Age  time.Duration `json:"age"`  // when it was kept last
	Wall int64         `json:"wall"` // Unix milliseconds then

	at     time.Time // then, by the clock that runs while this process does
	looked bool      // since the engine was opened
}

// betweenEngines bounds how much the time between two engines counts.
const betweenEngines = 24 * time.Hour

// keepAgeEach is after how much of its age it is kept, and the trash looked at.
const keepAgeEach = time.Hour

// LoadTrashAge goes on from where the engine before this one was. What can't be read
// makes the trash younger than it is, and what is in it stays longer.
func (mv *Mover) LoadTrashAge() error {
	now := mv.now()
	err := disk.ReadJSON(mv.store.Work("trash-age.json"), &mv.trashAge)
	if err != nil && !isNoBook(err) {
		return err
	}
	if err != nil || mv.trashAge.Age < 0 {
		mv.trashAge = trashAge{Wall: now.UnixMilli()}
	}
	gap := time.Duration(now.UnixMilli()-mv.trashAge.Wall) * time.Millisecond
	mv.trashAge.Age += min(max(gap, 0), betweenEngines)
	mv.trashAge.at = now
	return nil
}

func (a *trashAge) now(t time.Time) time.Duration { return a.Age + max(0, t.Sub(a.at)) }

// EmptyTrash removes what is older than trashFor.
func (mv *Mover) EmptyTrash() error {
	t := mv.now()
	now := mv.trashAge.now(t)
	if mv.trashAge.looked && now-mv.trashAge.Age < keepAgeEach {
		return nil
	}
	mv.trashAge = trashAge{Age: now, Wall: t.UnixMilli(), at: t, looked: true}
	raw, err := json.Marshal(mv.trashAge)
	if err != nil {
		return err
	}
	if err := disk.WriteDurably(mv.store.Work("trash-age.json"), raw); err != nil {
		return err
	}
	entries, err := os.ReadDir(mv.Trash())
	if err != nil {
		return err
	}
	for _, en := range entries {
		m, err := mv.Entry(en.Name())
		if err != nil && !isNoBook(err) {
			return err
		}
		if err != nil {
			m.Age = 0 // it never became durable, or is damaged: it goes with the oldest
		}
		if now-time.Duration(m.Age)*time.Millisecond <= trashFor {
			// Sorted by time, but for what was made while the clock was elsewhere,
			// which stays a little longer.
			return nil
		}
		if err := mv.RemoveEntry(en.Name()); err != nil {
			// It stays in nobody's way, and is tried again.
			mv.logger.Warn("an old entry of the trash was not removed", "entry", en.Name(), "error", err)
		}
	}
	return nil
}

// isNoBook reports whether a book is not there or damaged, and not only out of reach.
func isNoBook(err error) bool {
	var bad *disk.BadFile
	return errors.Is(err, fs.ErrNotExist) || errors.As(err, &bad)
}
