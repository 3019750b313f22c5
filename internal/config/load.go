package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"choir.dev/choiros/internal/fault"
)

// Sources is where a configuration is read from.
type Sources struct {
	File    string         // --config; empty: the usual places
	Environ []string       // NAME=value, as os.Environ gives
	Flags   map[string]any // key such as "server.listen" → value; set flags only
}

// Keys lists every key of the file, such as "git.auto_commit_interval".
func Keys() []string { return knownKeys(reflect.TypeFor[Config](), "") }

// alias are variables that have a name of their own beside CHOIR_SECTION_KEY.
var alias = map[string]string{
	"CHOIR_DATA": "server.data", "CHOIR_LISTEN": "server.listen", "CHOIR_MODEL": "models.default",
	"ANTHROPIC_BASE_URL": "models.anthropic_base_url", "OPENAI_BASE_URL": "models.openai_base_url",
}

// notKeys are CHOIR_* variables that are not configuration: they tell the
// command line where a running instance is.
var notKeys = []string{"CHOIR_URL", "CHOIR_TOKEN", "CHOIR_CONFIG", "CHOIR_MASTER_KEY", "CHOIR_MASTER_KEY_FILE"}

// Load reads, merges and checks the configuration.
func Load(src Sources) (Config, error) {
	const op = "config.Load"
	keys := Keys()
	k := koanf.New(".")
	path, err := findFile(src)
	if err != nil {
		return Config{}, err
	}
	if path != "" {
		if err := k.Load(file.Provider(path), toml.Parser()); err != nil {
			return Config{}, fault.New(op, fault.Invalid, "Correct "+path+" or name another file with --config.", err)
		}
		for _, key := range k.Keys() {
			if !slices.Contains(keys, key) {
				return Config{}, unknownKey(key, keys, path)
			}
		}
	}
	env, err := fromEnviron(src.Environ, keys)
	if err != nil {
		return Config{}, err
	}
	for _, m := range []map[string]any{env, src.Flags} {
		if err := k.Load(confmap.Provider(m, "."), nil); err != nil {
			return Config{}, fault.Wrap(op, err)
		}
	}
	c := Default()
	conf := koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		Result: &c, WeaklyTypedInput: true, TagName: "koanf",
		DecodeHook: mapstructure.StringToSliceHookFunc(","),
	}}
	if err := k.UnmarshalWithConf("", &c, conf); err != nil {
		return Config{}, fault.New(op, fault.Invalid, "Correct the value; docs/configuration.md lists every key with its type.", err)
	}
	if c.Server.Data == "" {
		c.Server.Data = defaultData(src.Environ)
	}
	if c.Server.Data, err = filepath.Abs(c.Server.Data); err != nil {
		return Config{}, fault.Wrap(op, err)
	}
	if err := c.validate(); err != nil {
		return Config{}, fault.New(op, fault.Invalid, "Correct the value; docs/configuration.md lists every key with its type.", err)
	}
	return c, nil
}

func findFile(src Sources) (string, error) {
	if src.File != "" {
		if _, err := os.Stat(src.File); err != nil {
			return "", fault.New("config.Load", fault.NotFound, "Check the path given with --config.", err)
		}
		return src.File, nil
	}
	for _, p := range []string{filepath.Join(configHome(src.Environ), "choir", "config.toml"), "/etc/choir/config.toml"} {
		_, err := os.Stat(p)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return "", fault.Wrap("config.Load", err)
		}
	}
	return "", nil
}

func fromEnviron(environ []string, keys []string) (map[string]any, error) {
	byName := map[string]string{}
	for _, key := range keys {
		byName["CHOIR_"+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))] = key
	}
	for name, key := range alias {
		byName[name] = key
	}
	out := map[string]any{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		key, known := byName[name]
		switch {
		case known && value != "":
			out[key] = value
		case !known && strings.HasPrefix(name, "CHOIR_") && !slices.Contains(notKeys, name):
			names := make([]string, 0, len(byName))
			for n := range byName {
				names = append(names, n)
			}
			slices.Sort(names)
			return nil, unknownKey(name, names, "the environment")
		}
	}
	return out, nil
}

func unknownKey(key string, known []string, where string) error {
	return fault.New("config.Load", fault.Invalid, "Did you mean "+nearest(key, known)+"?",
		&KeyError{key, "is not a known key, in " + where})
}

func knownKeys(t reflect.Type, prefix string) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		key := prefix + f.Tag.Get("koanf")
		if f.Type.Kind() == reflect.Struct {
			out = append(out, knownKeys(f.Type, key+".")...)
		} else {
			out = append(out, key)
		}
	}
	return out
}

// nearest returns the known key with the smallest edit distance.
func nearest(key string, known []string) string {
	best, score := "", 1<<30
	for _, k := range known {
		if d := distance(key, k); d < score {
			best, score = k, d
		}
	}
	return best
}

func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		prev := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			prev, row[j] = row[j], min(row[j]+1, row[j-1]+1, prev+cost)
		}
	}
	return row[len(b)]
}

func lookup(environ []string, name string) string {
	for _, kv := range environ {
		if n, v, _ := strings.Cut(kv, "="); n == name {
			return v
		}
	}
	return ""
}

func configHome(environ []string) string {
	if d := lookup(environ, "XDG_CONFIG_HOME"); filepath.IsAbs(d) {
		return d
	}
	return filepath.Join(lookup(environ, "HOME"), ".config")
}

// defaultData is $XDG_DATA_HOME/choir, else ~/.local/share/choir.
func defaultData(environ []string) string {
	if d := lookup(environ, "XDG_DATA_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "choir")
	}
	return filepath.Join(lookup(environ, "HOME"), ".local", "share", "choir")
}
