// Package money divides amounts.
package money

// Split divides cents among n people: the parts differ by at most one, larger ones come first, and
// they add up to the whole.
func Split(cents int64, n int) []int64 {
	if n < 1 {
		return nil
	}
	part, rest := cents/int64(n), cents%int64(n)
	if rest < 0 {
		part, rest = part-1, rest+int64(n)
	}
	out := make([]int64, n)
	for i := range out {
		out[i] = part
		if int64(i) < rest {
			out[i]++
		}
	}
	return out
}
