// Package themes has the themes that come with a computer.
package themes

import "choir.dev/choiros/contract"

// All returns the ones that come with a computer, whose desktop can be set to any of them; the first is a new one's.
func All() []contract.Theme {
	return []contract.Theme{
		{Name: "Night", Scheme: "dark", Radius: 10, Colors: map[string]string{
			"accent": "#d4af37", "background": "#0a0a0b", "border": "#28282c", "danger": "#ef6f66", "muted": "#98979e",
			"ok": "#62c08a", "surface": "#121214", "surface-raised": "#1a1a1d", "text": "#ececea", "warn": "#e8965a",
		}},
		{Name: "Day", Scheme: "light", Radius: 10, Colors: map[string]string{
			"accent": "#e0b02c", "background": "#e9e6de", "border": "#d6d1c5", "danger": "#b3322b", "muted": "#625e55",
			"ok": "#1d7046", "surface": "#f7f5f0", "surface-raised": "#ffffff", "text": "#1b1a17", "warn": "#9a4f08",
		}},
	}
}

// Of is the first of a scheme; ok is false where there is none.
func Of(scheme string) (t contract.Theme, ok bool) {
	for _, t := range All() {
		if t.Scheme == scheme {
			return t, true
		}
	}
	return contract.Theme{}, false
}
