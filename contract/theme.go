package contract

import (
	"regexp"
	"sync"
)

// Theme is the content of artifacts/system/theme.json: data, never code. Every
// colour becomes a CSS variable --choir-NAME.
type Theme struct {
	Name   string            `json:"name" v:"required,max=60"`
	Scheme string            `json:"scheme" v:"required"`     // dark or light
	Colors map[string]string `json:"colors" v:"items=10"`     // keys of ThemeColors, values #rgb, #rrggbb or #rrggbbaa
	Radius int               `json:"radius" v:"min=0,max=24"` // px, 0 to 24
}

// ThemeColors lists the names a theme must give a colour for.
var ThemeColors = []string{"accent", "background", "border", "danger", "muted", "ok", "surface", "surface-raised", "text", "warn"}

// ThemePath is the theme's file in a workspace.
const ThemePath = "artifacts/system/theme.json"

// MaxTheme bounds a theme file, in bytes.
const MaxTheme = 16 << 10

// ColorPattern is what a colour must match: nothing that could carry CSS code.
const ColorPattern = `^#([0-9a-fA-F]{3}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})$`

var colorPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(ColorPattern) })

// DecodeTheme decodes and validates a theme file.
func DecodeTheme(b []byte) (Theme, error) {
	var t Theme
	if err := DecodeStrict(b, MaxTheme, &t); err != nil {
		return Theme{}, within("theme", err)
	}
	return t, t.Validate()
}

// Validate checks that every colour is there and none can carry CSS code.
func (t Theme) Validate() error { return check(t) }
