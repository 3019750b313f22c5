package gateway

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
	"choir.dev/choiros/internal/gateway/provider"
)

//go:embed catalogue.toml
var builtIn []byte

const maxCatalogue = 1 << 20

// Catalogue is what is known about models.
type Catalogue struct {
	Models   map[string]ModelInfo // by provider/model
	Aliases  map[string][]string  // the first whose provider can be called counts
	Defaults map[string]string    // provider → provider/model
}

// ModelInfo is one model. Prices are USD per million tokens; they count only if
// Priced. Zero sizes are unknown.
type ModelInfo struct {
	Name            string  `toml:"name" json:"name"`
	Context         int     `toml:"context" json:"context,omitempty"`
	MaxOutput       int     `toml:"max_output" json:"max_output,omitempty"`
	PriceIn         float64 `toml:"price_in" json:"price_in,omitempty"`
	PriceOut        float64 `toml:"price_out" json:"price_out,omitempty"`
	PriceCacheRead  float64 `toml:"price_cache_read" json:"price_cache_read,omitempty"`
	PriceCacheWrite float64 `toml:"price_cache_write" json:"price_cache_write,omitempty"`
	PriceSource     string  `toml:"price_source" json:"price_source,omitempty"`
	PriceDate       string  `toml:"price_date" json:"price_date,omitempty"`
	Priced          bool    `toml:"-" json:"priced"`
	// Long is what is charged instead, of the whole request, when it has more tokens than Long.Over.
	Long *LongPrice `toml:"long" json:"long,omitempty"`
	// Wire is the format in which the vendor wants the model to be called, if it is not its usual one.
	Wire Wire `toml:"wire" json:"wire,omitempty"`
	Abilities
	// Source and Date say where the sizes and abilities are from.
	Source string `toml:"source" json:"source,omitempty"`
	Date   string `toml:"date" json:"date,omitempty"`
}

// LongPrice are the prices of long requests, in USD per million tokens. CacheRead and CacheWrite of 0 are In.
type LongPrice struct {
	Over       int64   `toml:"over" json:"over"`
	In         float64 `toml:"in" json:"in"`
	Out        float64 `toml:"out" json:"out"`
	CacheRead  float64 `toml:"cache_read" json:"cache_read,omitempty"`
	CacheWrite float64 `toml:"cache_write" json:"cache_write,omitempty"`
}

// at returns the model with the prices of a request of so many tokens.
func (m ModelInfo) at(tokens int64) ModelInfo {
	if l := m.Long; l != nil && tokens > l.Over {
		m.PriceIn, m.PriceOut, m.PriceCacheRead, m.PriceCacheWrite = l.In, l.Out, l.CacheRead, l.CacheWrite
	}
	return m
}

// Abilities is what a model can be told or shown. What is not known of a model, it is not asked for.
type Abilities struct {
	Images     bool               `toml:"images" json:"images,omitempty"`         // whether it looks at pictures
	Structured bool               `toml:"structured" json:"structured,omitempty"` // whether its service holds it to a JSON Schema
	Reasoning  provider.Reasoning `toml:"reasoning" json:"reasoning,omitempty"`   // how it is told how much to think
	Efforts    []contract.Effort  `toml:"efforts" json:"efforts,omitempty"`       // which efforts it has; empty: low, medium, high
}

func (m ModelInfo) abilities() provider.Abilities {
	return provider.Abilities{Reasoning: m.Reasoning, Efforts: m.Efforts, Output: m.Structured, Images: m.Images}
}

// check reports what of the abilities is not known here.
func (a Abilities) check() error {
	switch a.Reasoning {
	case "", provider.ReasoningAdaptive, provider.ReasoningBudget, provider.ReasoningEffort, provider.ReasoningSwitch:
	default:
		return fmt.Errorf("reasoning is %q; it is one of adaptive, budget, effort, switch", short(string(a.Reasoning)))
	}
	for _, e := range a.Efforts {
		switch e {
		case contract.EffortNone, contract.EffortLow, contract.EffortMedium, contract.EffortHigh:
		default:
			return fmt.Errorf("efforts has %q; they are none, low, medium, high", short(string(e)))
		}
	}
	return nil
}

// readPrice and writePrice fall back to the plain input price, which never charges too little for a
// read from the cache.
func (m ModelInfo) readPrice() float64 {
	if m.PriceCacheRead > 0 {
		return m.PriceCacheRead
	}
	return m.PriceIn
}

// free reports whether the price is known to be zero.
func (m ModelInfo) free() bool {
	return m.Priced && m.PriceIn == 0 && m.PriceOut == 0 && m.writePrice() == 0 && m.readPrice() == 0
}

func (m ModelInfo) writePrice() float64 { return max(m.PriceCacheWrite, m.PriceIn) }

type catalogueFile struct {
	Defaults map[string]string `toml:"defaults"`
	Aliases  map[string]any    `toml:"aliases"` // a name, or a list of names
	Models   []struct {
		ModelInfo
		PriceIn  *float64 `toml:"price_in"`
		PriceOut *float64 `toml:"price_out"`
	} `toml:"models"`
}

// loadCatalogue reads the built-in catalogue, and adds the file at path, which overrides it.
func loadCatalogue(path string) (*Catalogue, error) {
	c := &Catalogue{Models: map[string]ModelInfo{}, Aliases: map[string][]string{}, Defaults: map[string]string{}}
	if err := c.add(builtIn); err != nil {
		return nil, fmt.Errorf("built-in catalogue: %w", err)
	}
	if path == "" {
		return c, nil
	}
	const hint = "It is the file that models.catalogue names; docs/models.md says what is in it."
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.New("gateway.catalogue", fault.Invalid, hint, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCatalogue+1))
	if err == nil && len(b) > maxCatalogue {
		err = errors.New("the file is over 1 MiB")
	}
	if err == nil {
		err = c.add(b)
	}
	if err != nil {
		return nil, fault.New("gateway.catalogue", fault.Invalid, hint, fmt.Errorf("%s: %w", path, err))
	}
	return c, nil
}

// where adds to an error of a file what it is about: its line, and the fields that are not known. Not of all that is
// missing in the file's form does the library's own text say where it is.
func where(err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		first := strict.Errors[0]
		line, _ := first.Position()
		text := fmt.Sprintf("line %d: %q is no field here", line, short(strings.Join(first.Key(), ".")))
		if n := len(strict.Errors) - 1; n > 0 {
			text += fmt.Sprintf(", and %d more are none", n)
		}
		return errors.New(text)
	}
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		line, column := decode.Position()
		if key := strings.Join(decode.Key(), "."); key != "" {
			return fmt.Errorf("line %d, %s: %w", line, short(key), err)
		}
		return fmt.Errorf("line %d, column %d: %w", line, column, err)
	}
	return err
}

func (c *Catalogue) add(b []byte) error {
	var f catalogueFile
	d := toml.NewDecoder(bytes.NewReader(b)).DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return where(err)
	}
	for i, m := range f.Models {
		info := m.ModelInfo
		if m.PriceIn != nil && m.PriceOut != nil {
			info.PriceIn, info.PriceOut, info.Priced = *m.PriceIn, *m.PriceOut, true
		} else if (m.PriceIn == nil) != (m.PriceOut == nil) {
			return fmt.Errorf("models[%d]: give both price_in and price_out, or neither", i)
		}
		prices := []float64{info.PriceIn, info.PriceOut, info.PriceCacheRead, info.PriceCacheWrite}
		if l := info.Long; l != nil {
			if prices = append(prices, l.In, l.Out, l.CacheRead, l.CacheWrite); l.Over <= 0 || !info.Priced {
				return fmt.Errorf("models[%d].long: give over, and the prices of shorter requests too", i)
			}
		}
		if info.Wire != "" && !slices.Contains(Wires(), string(info.Wire)) {
			return fmt.Errorf("models[%d].wire is %q; it is one of %s", i, short(string(info.Wire)), strings.Join(Wires(), ", "))
		}
		for _, p := range prices {
			if p < 0 || p > 1e6 || math.IsNaN(p) {
				return fmt.Errorf("models[%d]: a price is not from 0 to a million", i)
			}
		}
		if err := info.Abilities.check(); err != nil {
			return fmt.Errorf("models[%d].%w", i, err)
		}
		if info.Context < 0 || info.MaxOutput < 0 {
			return fmt.Errorf("models[%d]: a size is negative", i)
		}
		if p, m, ok := strings.Cut(info.Name, "/"); !ok || p == "" || m == "" {
			return fmt.Errorf("models[%d].name is %q; write it as provider/model", i, info.Name)
		}
		c.Models[info.Name] = info
	}
	for alias, to := range f.Aliases {
		names, ok := texts(to)
		if !ok || len(names) == 0 || alias == "" || strings.Contains(alias, "/") {
			return fmt.Errorf("aliases.%s: an alias has no slash, and is for a model or a list of them", short(alias))
		}
		c.Aliases[alias] = names
	}
	maps.Copy(c.Defaults, f.Defaults)
	return nil
}

// texts returns a text, or a list of texts, as a list.
func texts(v any) ([]string, bool) {
	switch v := v.(type) {
	case string:
		return []string{v}, true
	case []any:
		var out []string
		for _, e := range v {
			s, ok := e.(string)
			if !ok {
				return nil, false
			}
			out = append(out, s)
		}
		return out, true
	}
	return nil, false
}
