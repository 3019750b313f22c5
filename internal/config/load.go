package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/toml/v2"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	syntax "github.com/pelletier/go-toml/v2"

	"choir.dev/choiros/internal/fault"
)

// Sources is where a configuration is read from.
type Sources struct {
	File    string         // --config; empty: the usual places
	Environ []string       // NAME=value, as os.Environ gives
	Flags   map[string]any // key such as "server.listen" → value; set flags only
}

// Keys lists every key of the file with a fixed name, such as "git.auto_commit_interval".
func Keys() []string {
	return slices.DeleteFunc(knownKeys(reflect.TypeFor[Config](), ""), named)
}

// Families lists the keys in which a part, written as *, is a name that the owner gives, such as
// "models.providers.*.base_url". They stand in the file only.
func Families() []string {
	return slices.DeleteFunc(knownKeys(reflect.TypeFor[Config](), ""), func(key string) bool { return !named(key) })
}

// named reports whether a part of a key is a name that the owner gives.
func named(key string) bool { return strings.Contains(key, ".*.") }

// known reports whether a key is one of those, or of a family of theirs.
func known(keys []string, key string) bool {
	return slices.ContainsFunc(keys, func(k string) bool {
		before, after, family := strings.Cut(k, ".*.")
		if !family {
			return k == key
		}
		name, ok := strings.CutPrefix(key, before+".")
		name, ok2 := strings.CutSuffix(name, "."+after)
		return ok && ok2 && name != "" && !strings.Contains(name, ".")
	})
}

// alias are variables that have a name of their own beside CHOIR_SECTION_KEY.
var alias = map[string]string{
	"CHOIR_DATA": "server.data", "CHOIR_LISTEN": "server.listen", "CHOIR_MODEL": "models.default",
	"ANTHROPIC_BASE_URL": "models.anthropic_base_url", "OPENAI_BASE_URL": "models.openai_base_url",
	"OTEL_EXPORTER_OTLP_ENDPOINT": "tracing.endpoint",
}

// fileVariable names the file, as --config does.
const fileVariable = "CHOIR_CONFIG"

// notKeys are CHOIR_* variables that are not configuration: they tell the
// command line where a running instance is, and the vault its master key.
var notKeys = []string{"CHOIR_URL", "CHOIR_TOKEN", fileVariable, "CHOIR_VAULT_KEY", "CHOIR_VAULT_KEY_FILE"}

// Load reads, merges and checks the configuration.
func Load(src Sources) (Config, error) {
	c, _, err := load(src)
	return c, err
}

// Setting is the value of one key and its source: default, a file's path, a variable's name
// or a flag.
type Setting struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Source string `json:"source"`
}

// Settings reads the configuration as Load does, and returns it key by key.
func Settings(src Sources) ([]Setting, error) {
	c, from, err := load(src)
	if err != nil {
		return nil, err
	}
	keys := Keys()
	for _, key := range slices.Sorted(maps.Keys(from)) {
		if !slices.Contains(keys, key) {
			keys = append(keys, key) // of a family
		}
	}
	var out []Setting
	for _, key := range keys {
		out = append(out, Setting{Key: key, Value: c.value(key), Source: cmp.Or(from[key], "default")})
	}
	return out, nil
}

// value is the value of one of Keys, or of a key of a family that is set.
func (c Config) value(key string) any {
	v := reflect.ValueOf(c)
	for name := range strings.SplitSeq(key, ".") {
		if v.Kind() == reflect.Map {
			v = v.MapIndex(reflect.ValueOf(name))
			continue
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("koanf") == name {
				v = v.Field(i)
				break
			}
		}
	}
	return v.Interface()
}

// load also returns the source of each key whose value is not the default.
func load(src Sources) (_ Config, from map[string]string, err error) {
	const op = "config.Load"
	keys := Keys()
	from = map[string]string{}
	k := koanf.New(".")
	path, err := findFile(src)
	if err != nil {
		return Config{}, nil, err
	}
	if path != "" {
		if err := k.Load(file.Provider(path), toml.Parser()); err != nil {
			return Config{}, nil, fault.New(op, fault.Invalid, "Correct "+path+" or name another file with --config.", where(err))
		}
		for _, key := range k.Keys() {
			if !known(keys, key) && !known(Families(), key) {
				return Config{}, nil, unknownKey(key, append(keys, Families()...), path)
			}
			from[key] = path
		}
	}
	env, err := fromEnviron(src.Environ, keys, from)
	if err != nil {
		return Config{}, nil, err
	}
	for key := range src.Flags {
		from[key] = "--" + key[strings.LastIndex(key, ".")+1:]
	}
	for _, m := range []map[string]any{env, src.Flags} {
		if err := k.Load(confmap.Provider(m, "."), nil); err != nil {
			return Config{}, nil, fault.Wrap(op, err)
		}
	}
	c := Default()
	conf := koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
		Result: &c, WeaklyTypedInput: true, TagName: "koanf",
		DecodeHook: mapstructure.StringToSliceHookFunc(","),
	}}
	if err := k.UnmarshalWithConf("", &c, conf); err != nil {
		return Config{}, nil, fault.New(op, fault.Invalid, "Correct the value; docs/configuration.md lists every key with its type.", undecoded(err, from))
	}
	if c.Server.Data == "" {
		if c.Server.Data, err = defaultData(src.Environ); err != nil {
			return Config{}, nil, err
		}
	}
	if err := c.expand(src.Environ); err != nil {
		return Config{}, nil, err
	}
	if c.Server.Data, err = filepath.Abs(c.Server.Data); err != nil {
		return Config{}, nil, fault.Wrap(op, err)
	}
	if err := c.validate(); err != nil {
		return Config{}, nil, fault.New(op, fault.Invalid, "Correct the value; docs/configuration.md lists every key with its type.", err)
	}
	return c, from, nil
}

// where adds to an error of TOML's syntax the line that it is in.
func where(err error) error {
	var of *syntax.DecodeError
	if !errors.As(err, &of) {
		return err
	}
	line, column := of.Position()
	return fmt.Errorf("line %d, column %d: %w", line, column, err)
}

// undecoded says of the first value that is of another type than its key which it is, where
// it was given and what it should be, which the decoder's own text does not.
func undecoded(err error, from map[string]string) error {
	var of *mapstructure.DecodeError
	if !errors.As(err, &of) {
		return err
	}
	key := of.Name()
	if source := from[key]; source != "" {
		key += " (" + source + ")"
	}
	var parsed *mapstructure.ParseError
	if errors.As(err, &parsed) {
		want := "whole number"
		if parsed.Expected.CanFloat() {
			want = "number"
		}
		return fmt.Errorf("%s: %q is no %s", key, fmt.Sprint(parsed.Value), want)
	}
	return fmt.Errorf("%s: %w", key, of.Unwrap())
}

// expand replaces a leading ~ in paths: a shell does that only in its own words, and a
// folder called ~ in the working directory is never meant.
func (c *Config) expand(environ []string) error {
	paths := map[string]*string{
		"server.data": &c.Server.Data, "models.catalogue": &c.Models.Catalogue, "models.plans": &c.Models.Plans, "egress.ca_file": &c.Egress.CAFile,
	}
	for i := range c.Runtime.Path {
		paths["runtime.path"+strconv.Itoa(i)] = &c.Runtime.Path[i]
	}
	for i := range c.Runtime.ReadOnly {
		paths["runtime.read_only"+strconv.Itoa(i)] = &c.Runtime.ReadOnly[i]
	}
	for key, path := range paths {
		var err error
		if *path, err = Path(environ, *path); err != nil {
			return fault.New("config.Load", fault.Invalid, fault.HintOf(err), &KeyError{strings.TrimRight(key, "0123456789"), err.Error()})
		}
	}
	return nil
}

// Path replaces a leading ~ in a path that a person wrote by the home directory.
func Path(environ []string, path string) (string, error) {
	if !strings.HasPrefix(path, "~") {
		return path, nil
	}
	name, rest, _ := strings.Cut(path, "/")
	if name != "~" {
		return "", fault.New("config.Path", fault.Invalid, "Write the whole path, or ./"+path+" for what is called so.", fmt.Errorf("%q begins with another user's home", path))
	}
	home, err := home(environ)
	if err != nil {
		return "", err
	}
	return filepath.Join(home, rest), nil
}

// home is the user's home directory. Without one this is an error, rather than using the
// working directory.
func home(environ []string) (string, error) {
	if h := lookup(environ, "HOME"); filepath.IsAbs(h) {
		return filepath.Clean(h), nil
	}
	return "", fault.New("config.Load", fault.Invalid, "Set HOME, or name the data directory with --data or CHOIR_DATA.", errors.New("HOME is not set to an absolute path, so there is no place for choir's data"))
}

func findFile(src Sources) (string, error) {
	if named := cmp.Or(src.File, lookup(src.Environ, fileVariable)); named != "" {
		path, err := Path(src.Environ, named)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err != nil {
			return "", fault.New("config.Load", fault.NotFound, "Check the path given with --config or "+fileVariable+".", err)
		}
		return path, nil
	}
	places := []string{"/etc/choir/config.toml"}
	if dir := configHome(src.Environ); dir != "" {
		places = []string{filepath.Join(dir, "choir", "config.toml"), places[0]}
	}
	for _, p := range places {
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

func fromEnviron(environ []string, keys []string, from map[string]string) (map[string]any, error) {
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
			from[key] = name
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
		switch f.Type.Kind() {
		case reflect.Struct:
			out = append(out, knownKeys(f.Type, key+".")...)
		case reflect.Map:
			out = append(out, knownKeys(f.Type.Elem(), key+".*.")...)
		default:
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

// configHome is the user's configuration directory, "" where there is none.
func configHome(environ []string) string {
	if d := lookup(environ, "XDG_CONFIG_HOME"); filepath.IsAbs(d) {
		return d
	}
	h, err := home(environ)
	if err != nil {
		return ""
	}
	return filepath.Join(h, ".config")
}

// defaultData is $XDG_DATA_HOME/choir, else ~/.local/share/choir.
func defaultData(environ []string) (string, error) {
	if d := lookup(environ, "XDG_DATA_HOME"); filepath.IsAbs(d) {
		return filepath.Join(d, "choir"), nil
	}
	h, err := home(environ)
	if err != nil {
		return "", err
	}
	return filepath.Join(h, ".local", "share", "choir"), nil
}
