package contract_test

import (
	"maps"
	"testing"

	"choir.dev/choiros/contract"
)

func TestThemesMustBeReadable(t *testing.T) {
	night := map[string]string{"accent": "#d4af37", "background": "#0a0a0b", "border": "#28282c", "danger": "#ef6f66", "muted": "#98979e", "ok": "#62c08a",
		"surface": "#121214", "surface-raised": "#1a1a1d", "text": "#ececea", "warn": "#e8965a"}
	for _, c := range []struct{ name, value, field string }{
		{"background", "#0a0a0b", ""},
		{"background", "#123a7a", ""},
		{"background", "#e8e8e8", "colors.text"},
		{"text", "#333", "colors.text"},
		{"muted", "#444444", "colors.muted"},
		{"danger", "#222222ff", "colors.danger"},
		{"border", "#121214", ""},
	} {
		theme := contract.Theme{Name: "x", Scheme: "dark", Colors: maps.Clone(night)}
		theme.Colors[c.name] = c.value
		fe := contract.AsFieldError(theme.Readable())
		if got := ""; fe != nil {
			if got = fe.Field; got != c.field {
				t.Errorf("%s %s: %v", c.name, c.value, fe)
			}
		} else if c.field != "" {
			t.Errorf("%s %s can't be read, and is taken", c.name, c.value)
		}
	}
}
