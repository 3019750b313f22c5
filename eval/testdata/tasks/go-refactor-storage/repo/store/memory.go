// Package store keeps counts.
package store

// Memory keeps them in memory.
type Memory struct{ counts map[string]int }

// NewMemory returns an empty one.
func NewMemory() *Memory { return &Memory{map[string]int{}} }

// Add adds to a count and returns it.
func (m *Memory) Add(name string, n int) int {
	m.counts[name] += n
	return m.counts[name]
}

// Names is how many names there are.
func (m *Memory) Names() int { return len(m.counts) }
