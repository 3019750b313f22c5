package contract

import (
	"fmt"
	"math"
	"strconv"
)

// readablePairs says what of a theme must be readable on what, and how well
// (WCAG): running text as AA asks, marks and large words as that does. The
// desktop applies the same (desktop/src/theme/theme.ts).
var readablePairs = []struct {
	inks, grounds []string
	least         float64
}{
	{[]string{"text"}, []string{"background", "surface", "surface-raised"}, 4.5},
	{[]string{"muted"}, []string{"surface", "surface-raised"}, 4.5},
	{[]string{"muted"}, []string{"background"}, 3},
	{[]string{"accent", "ok", "warn", "danger"}, []string{"surface", "surface-raised"}, 3},
}

// Readable reports what can't be read in a valid theme. It is no part of
// Validate: themes that stand in logs stay events.
func (t Theme) Readable() error {
	for _, p := range readablePairs {
		for _, ink := range p.inks {
			for _, ground := range p.grounds {
				if got := contrast(t.Colors[ink], t.Colors[ground]); got < p.least {
					return fieldErr("colors."+ink, "can't be read on %s %s: the contrast is %.1f, and must be %s", ground, t.Colors[ground], got, fmt.Sprint(p.least))
				}
			}
		}
	}
	return nil
}

// contrast of two colours, from 1 to 21; what shines through counts as opaque.
func contrast(a, b string) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(hex string) float64 {
	if len(hex) == 4 {
		hex = "#" + hex[1:2] + hex[1:2] + hex[2:3] + hex[2:3] + hex[3:4] + hex[3:4]
	}
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			return 0 // Validate has refused it
		}
		v := float64(n) / 255
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		sum += weight * v
	}
	return sum
}
