package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"choir.dev/choiros/internal/view"
)

// TestRandomKills lets a user work and kills choir, or a box, at random instants: a few times, or
// for as long as CHOIR_CHAOS says.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	dice := random("kills")
	began := time.Now()
	for round := 0; !t.Failed() && (long > 0 && time.Since(began) < long || round == 0); {
		w := newWorld(t) // a new one from time to time, because each check reads its whole log
		for last := round + 8; round < last && !t.Failed() && (long == 0 && round < 4 || long > 0 && time.Since(began) < long); round++ {
			w.storm(round, dice)
		}
		w.checkDeep()
		w.end()
	}
}

// storm is one round: work, kills of some boxes, a kill of choir, and a check of everything.
func (w *world) storm(round int, dice *rand.Rand) {
	w.t.Helper()
	began := time.Now()
	ctx, cancel := w.soon()
	defer cancel()
	work, stop := context.WithCancel(ctx)
	defer stop()
	var workers sync.WaitGroup
	for i, worker := range []func(context.Context, *world, *rand.Rand) error{writes, commands, checkpoints, prompts, watches} {
		own := random(fmt.Sprint("worker ", round, " ", i))
		workers.Go(func() {
			for work.Err() == nil {
				if err := worker(work, w, own); err != nil {
					// If it was refused or lost, its outcome is checked at the end.
					select {
					case <-work.Done():
					case <-w.in.Done():
						return
					case <-time.After(5 * time.Millisecond):
					}
				}
			}
		})
	}
	var killed []string
	for range 1 + dice.IntN(3) {
		w.pause(dice, 600)
		boxes := w.boxes()
		if len(boxes) == 0 {
			continue
		}
		b := boxes[dice.IntN(len(boxes))]
		if err := syscall.Kill(b.pid, syscall.SIGKILL); err == nil {
			killed = append(killed, b.kind)
		}
	}
	w.pause(dice, 900)
	w.in.Kill()
	stop()
	workers.Wait()
	worked := time.Since(began)
	w.restart()
	when := fmt.Sprintf("round %d: killed %v, then choir", round, killed)
	w.verify(when, true)
	histogram.add("random: choir", "restarted")
	for _, k := range killed {
		histogram.add("random: "+k, "box killed")
	}
	for _, p := range w.prompts {
		if !p.counted {
			p.counted = true
			histogram.add("random: runs", p.outcome)
		}
	}
	w.t.Logf("%s (%v of work, %v of looking)", when, worked.Round(time.Millisecond), (time.Since(began) - worked).Round(time.Millisecond))
}

// pause waits for a random time; everything else here waits for a condition.
func (w *world) pause(dice *rand.Rand, ms int) {
	select {
	case <-time.After(time.Duration(dice.IntN(ms)) * time.Millisecond):
	case <-w.in.Done():
	}
}

func writes(ctx context.Context, w *world, dice *rand.Rand) error {
	return w.put(ctx, fmt.Sprintf("workspace/u/%d.txt", dice.IntN(6)), fmt.Sprintf("%x\r\n", dice.Uint64()))
}

func commands(ctx context.Context, w *world, dice *rand.Rand) error {
	n := w.next()
	return w.exec(ctx, "workspace/e/"+n+".txt", n, dice.IntN(3))
}

// checkpoints makes checkpoints of a folder of its own and restores them.
func checkpoints(ctx context.Context, w *world, dice *rand.Rand) error {
	const path = "workspace/r/file.txt"
	first := fmt.Sprintf("first %x", dice.Uint64())
	if err := w.put(ctx, path, first); err != nil {
		return err
	}
	k, err := w.c.Checkpoint(ctx, "first")
	if err != nil {
		return err
	}
	w.witness.checkpoint(k.ID)
	if err := w.put(ctx, path, fmt.Sprintf("second %x", dice.Uint64())); err != nil {
		return err
	}
	w.tree.maybe(path, first)
	r, err := w.c.Restore(ctx, view.RestoreRequest{To: k.ID, Paths: []string{path}})
	if err != nil {
		return err
	}
	if r.Checkpoint == "" {
		return errors.New("the restore made no checkpoint")
	}
	w.witness.restored(r.Checkpoint)
	w.tree.is(path, first)
	return nil
}

func prompts(ctx context.Context, w *world, dice *rand.Rand) error {
	p := recolour(fmt.Sprintf("#%06x", dice.IntN(1<<24)))
	if dice.IntN(2) == 0 {
		n := w.next()
		p = writeFile("workspace/p/"+n+".txt", "written "+n)
	}
	if err := w.prompt(ctx, p); err != nil {
		<-ctx.Done() // the operation may have been accepted, and another one could overtake it
		return err
	}
	for ctx.Err() == nil {
		if r, err := w.c.Wait(ctx, p.run); err == nil && r.Status.Ended() {
			return nil
		}
	}
	return ctx.Err()
}

// watches requests the desktop, which has a box only while somebody does.
func watches(ctx context.Context, w *world, dice *rand.Rand) error {
	if err := lookAtDesktop(ctx, w); err != nil {
		return err
	}
	w.pause(dice, 300)
	return nil
}
