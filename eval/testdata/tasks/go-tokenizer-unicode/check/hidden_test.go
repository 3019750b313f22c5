package words

import (
	"reflect"
	"testing"
)

func TestHiddenWords(t *testing.T) {
	for text, want := range map[string][]string{
		"Don't panic":    {"Don't", "panic"},
		"naïve Ünïcode":  {"naïve", "Ünïcode"},
		"'quoted' it''s": {"quoted", "it", "s"},
		"漢字 2nd":         {"漢字", "2nd"},
		"end":            {"end"},
		"":               nil,
		" - ":            nil,
	} {
		if got := Words(text); !reflect.DeepEqual(got, want) {
			t.Errorf("Words(%q) = %q, want %q", text, got, want)
		}
	}
}
