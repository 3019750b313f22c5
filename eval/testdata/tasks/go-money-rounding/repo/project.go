// Package money divides amounts.
package money

// Split divides cents among n people.
func Split(cents int64, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(float64(cents)/float64(n) + 0.5)
	}
	return out
}
