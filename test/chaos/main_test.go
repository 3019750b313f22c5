package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"choir.dev/choiros/test/choirtest"
)

// seed determines a run's choices: CHOIR_CHAOS_SEED repeats those of an earlier run. (The timing of
// the processes is not repeated.)
var seed = func() uint64 {
	if s := os.Getenv("CHOIR_CHAOS_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			fmt.Fprintf(os.Stderr, "CHOIR_CHAOS_SEED is no number: %v\n", err)
			os.Exit(2)
		}
		return n
	}
	return rand.Uint64()
}()

// long is how long processes are killed at random; 0 is the short form of `go test`.
var long = func() time.Duration {
	s := os.Getenv("CHOIR_CHAOS")
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		fmt.Fprintf(os.Stderr, "CHOIR_CHAOS is %q; want a duration such as 10m\n", s)
		os.Exit(2)
	}
	return d
}()

// random returns a source of choices for one part of a run.
func random(part string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(part) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, h))
}

func TestMain(m *testing.M) {
	choirtest.Lanes(4)
	code := m.Run()
	fmt.Printf("chaos: seed %d (CHOIR_CHAOS_SEED=%d chooses the same again)\n", seed, seed)
	fmt.Print(histogram.String())
	os.Exit(code)
}

// histogram counts the outcomes of the kills at each point.
var histogram = &counts{hits: map[string]map[string]int{}}

type counts struct {
	mu   sync.Mutex
	hits map[string]map[string]int // point → outcome → how often
}

func (c *counts) add(point, outcome string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hits[point] == nil {
		c.hits[point] = map[string]int{}
	}
	c.hits[point][outcome]++
}

func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var points []string
	for p := range c.hits {
		points = append(points, p)
	}
	sort.Strings(points)
	var b strings.Builder
	for _, p := range points {
		total := 0
		var outcomes []string
		for o, n := range c.hits[p] {
			total += n
			outcomes = append(outcomes, fmt.Sprintf("%s %d", o, n))
		}
		sort.Strings(outcomes)
		fmt.Fprintf(&b, "%-32s %4d  %s\n", p, total, strings.Join(outcomes, ", "))
	}
	return b.String()
}

// binary is choir with the crash points, built once. It has no embedded guest and serves as the
// guest itself, so that the points inside boxes are in it too. The reader of pages is the one of the newest make build.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(choirtest.Root(), "bin", "cache", "chaos", "choir")
	cmd := exec.Command("go", "build", "-tags", "crashpoints,embedreader", "-o", path, "./cmd/choir")
	cmd.Dir = choirtest.Root()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build choir with its crash points: %w\n%s", err, out)
	}
	return path, nil
})
