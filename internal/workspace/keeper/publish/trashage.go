package publish

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"choir.dev/choiros/internal/workspace/keeper/disk"
)

// trashFor is for how long the trash keeps things, measured by its own age.
const trashFor = 7 * 24 * time.Hour

// trashAge is the age of the trash: the time during which an engine ran, plus at most a day
// for each pause in between. A clock that is put forward, or that was behind and is
// corrected, does not age the trash, so that nobody's removed work is deleted by it.
type trashAge struct {
	Age  time.Duration `json:"age"`  // when it was last stored
	Wall int64         `json:"wall"` // Unix milliseconds at that time

	at      time.Time // that time by the monotonic clock of this process
	checked bool      // since the engine was opened
}

// betweenEngines limits how much of the time between two engines counts.
const betweenEngines = 24 * time.Hour

// keepAgeEach is how often, by its own age, the age is stored and the trash emptied of what
// is old.
const keepAgeEach = time.Hour

// LoadTrashAge continues from the age at which the previous engine stopped. If that can't
// be read, the trash counts as younger than it is, and its content stays longer.
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

// EmptyTrash removes what is older than trashFor. That it can't, as on a full disk, is no
// failure of the change that had something go to the trash, which took effect; it is tried
// again when the trash is an hour older.
func (mv *Mover) EmptyTrash() {
	if err := mv.emptyTrash(); err != nil {
		mv.logger.Warn("the trash was not emptied of what is old", "error", err)
	}
}

func (mv *Mover) emptyTrash() error {
	t := mv.now()
	now := mv.trashAge.now(t)
	if mv.trashAge.checked && now-mv.trashAge.Age < keepAgeEach {
		return nil
	}
	mv.trashAge = trashAge{Age: now, Wall: t.UnixMilli(), at: t, checked: true}
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
			// Entries are sorted by time, except those made while the clock was wrong,
			// which stay a little longer.
			return nil
		}
		if err := mv.RemoveEntry(en.Name()); err != nil {
			// The entry disturbs nobody, and is tried again.
			mv.logger.Warn("an old entry of the trash was not removed", "entry", en.Name(), "error", err)
		}
	}
	return nil
}

// isNoBook reports whether the file of the age is missing or damaged, as opposed to
// unreadable for the moment.
func isNoBook(err error) bool {
	var bad *disk.BadFile
	return errors.Is(err, fs.ErrNotExist) || errors.As(err, &bad)
}
