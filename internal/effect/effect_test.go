package effect_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/effect"
)

var (
	run  = contract.DeriveID("r", "run")
	one  = contract.DeriveID("r", "one")
	two  = contract.DeriveID("r", "two")
	call = effect.Call{Run: run, Target: "shop order", Digest: "d"}
)

// TestWhatMayBeMadeAgain is the rule: by what is known of the newest call like this one, who made it, and what the call says.
func TestWhatMayBeMadeAgain(t *testing.T) {
	with := func(c effect.Call, change func(*effect.Call)) effect.Call { change(&c); return c }
	names := with(call, func(c *effect.Call) { c.Again = one })
	takes := with(call, func(c *effect.Call) { c.Takes = true })
	both := with(takes, func(c *effect.Call) { c.Again = one })
	done, failed, unknown := contract.EffectDone, contract.EffectFailed, contract.EffectUnknown
	for what, c := range map[string]struct {
		call    effect.Call
		earlier []effect.Earlier
		refused string // "": it is made
	}{
		"the first":                            {call, nil, ""},
		"the first, naming another":            {names, nil, "names nothing"},
		"done by this loop":                    {call, []effect.Earlier{{ID: one, Outcome: done, Here: true}}, ""},
		"done by another":                      {call, []effect.Earlier{{ID: one, Outcome: done}}, "has done this already"},
		"done by another, named":               {names, []effect.Earlier{{ID: one, Outcome: done}}, ""},
		"done by another, harmless":            {with(call, func(c *effect.Call) { c.Harmless = true }), []effect.Earlier{{ID: one, Outcome: done}}, ""},
		"done, allowed once":                   {with(names, func(c *effect.Call) { c.Once = true }), []effect.Earlier{{ID: one, Outcome: done, Here: true}}, "allowed it one time"},
		"failed":                               {call, []effect.Earlier{{ID: one, Outcome: failed}}, ""},
		"under way":                            {call, []effect.Earlier{{ID: one}}, "under way"},
		"under way, named":                     {both, []effect.Earlier{{ID: one, Key: "k"}}, "under way"},
		"unknown":                              {call, []effect.Earlier{{ID: one, Outcome: unknown, Here: true}}, "is not made again by itself"},
		"unknown, harmless":                    {with(call, func(c *effect.Call) { c.Harmless = true }), []effect.Earlier{{ID: one, Outcome: unknown, Here: true}}, "is not made again by itself"},
		"unknown, named":                       {names, []effect.Earlier{{ID: one, Outcome: unknown}}, "is not made again by itself"},
		"unknown with a key":                   {takes, []effect.Earlier{{ID: one, Outcome: unknown, Key: "k"}}, "sent with the same key"},
		"unknown with a key, named":            {both, []effect.Earlier{{ID: one, Outcome: unknown, Key: "k"}}, ""},
		"unknown with a key nobody took":       {names, []effect.Earlier{{ID: one, Outcome: unknown, Key: "k"}}, "is not made again by itself"},
		"unknown, another named":               {both, []effect.Earlier{{ID: one, Outcome: unknown, Key: "k"}, {ID: two, Outcome: unknown, Key: "k"}}, "The newest call like this one is the effect " + two},
		"found not to have happened":           {call, []effect.Earlier{{ID: one, Outcome: unknown, Found: contract.FoundNotDone}}, "did not happen"},
		"found not to have happened, named":    {names, []effect.Earlier{{ID: one, Outcome: unknown, Found: contract.FoundNotDone}}, ""},
		"found to have happened":               {call, []effect.Earlier{{ID: one, Outcome: unknown, Found: contract.FoundDone, Here: true}}, "has done this already"},
		"found to have happened, named":        {names, []effect.Earlier{{ID: one, Outcome: unknown, Found: contract.FoundDone}}, ""},
		"once more after one that is unknown":  {call, []effect.Earlier{{ID: one, Outcome: unknown}, {ID: two, Outcome: unknown}}, two},
		"after one that is known, and unknown": {call, []effect.Earlier{{ID: one, Outcome: done}, {ID: two, Outcome: unknown}}, two},
		"failed twice":                         {call, []effect.Earlier{{ID: one, Outcome: failed}, {ID: two, Outcome: failed}}, ""},
		"done by another, and then failed":     {call, []effect.Earlier{{ID: one, Outcome: done, Key: "k"}, {ID: two, Outcome: failed, Key: "l"}}, "has done this already (effect " + one},
		"the same, the failed one by this":     {takes, []effect.Earlier{{ID: one, Outcome: done, Key: "k"}, {ID: two, Outcome: failed, Key: "l", Here: true}}, "has done this already (effect " + one},
		"the same, harmless":                   {with(call, func(c *effect.Call) { c.Harmless = true }), []effect.Earlier{{ID: one, Outcome: done}, {ID: two, Outcome: failed}}, ""},
		"the same, named":                      {names, []effect.Earlier{{ID: one, Outcome: done}, {ID: two, Outcome: failed}}, ""},
		"the same, the failed one named":       {with(call, func(c *effect.Call) { c.Again = two }), []effect.Earlier{{ID: one, Outcome: done}, {ID: two, Outcome: failed}}, "that did not fail is the effect " + one},
		"done by this loop, and then failed":   {call, []effect.Earlier{{ID: one, Outcome: done, Here: true}, {ID: two, Outcome: failed, Here: true}}, ""},
		"done and then failed, allowed once":   {with(takes, func(c *effect.Call) { c.Once = true }), []effect.Earlier{{ID: one, Outcome: done, Here: true}, {ID: two, Outcome: failed, Here: true}}, "allowed it one time"},
		"unknown, and failed twice":            {takes, []effect.Earlier{{ID: one, Outcome: unknown, Key: "k"}, {ID: two, Outcome: failed, Key: "k"}, {ID: two, Outcome: failed, Key: "k"}}, "is not known"},
		"found done after its repeat failed":   {takes, []effect.Earlier{{ID: one, Outcome: unknown, Found: contract.FoundDone, Key: "k", Here: true}, {ID: two, Outcome: failed, Key: "k", Here: true}}, "has done this already (effect " + one},
		"the same, allowed once, and named":    {with(both, func(c *effect.Call) { c.Once = true }), []effect.Earlier{{ID: one, Outcome: unknown, Found: contract.FoundDone, Key: "k"}, {ID: two, Outcome: failed, Key: "k"}}, "allowed it one time"},
		"found not done, its repeat failed":    {takes, []effect.Earlier{{ID: one, Outcome: unknown, Found: contract.FoundNotDone, Key: "k"}, {ID: two, Outcome: failed, Key: "k"}}, "did not happen"},
	} {
		key, refused := effect.Decide(c.call, c.earlier)
		if (refused == "") != (c.refused == "") || !strings.Contains(refused, c.refused) || (key == "") != (refused != "") {
			t.Errorf("%s: key %q, refused %q, want %q", what, key, refused, c.refused)
		}
	}
}

// TestAKeyStandsForOneEffect: what is unknown and made again has the key of the first time, also if the model gives another; what
// follows on something known has another, and so has another run, target or other arguments.
func TestAKeyStandsForOneEffect(t *testing.T) {
	takes := call
	takes.Takes = true
	first, _ := effect.Decide(takes, nil)
	if again, _ := effect.Decide(takes, nil); again != first || contract.ValidID("key", first) != nil {
		t.Errorf("the same call has the keys %q and %q", first, again)
	}
	named := takes
	named.Again, named.Given = one, "another"
	for _, found := range []contract.EffectFound{"", contract.FoundNotDone} {
		if got, refused := effect.Decide(named, []effect.Earlier{{ID: one, Outcome: contract.EffectUnknown, Found: found, Key: first}}); got != first {
			t.Errorf("found %q: a repeat has the key %q, not %q (%s)", found, got, first, refused)
		}
	}
	seen := map[string]string{first: "the first"}
	for what, c := range map[string]effect.Call{"another run": {Run: one, Target: call.Target, Digest: call.Digest}, "another target": {Run: run, Target: "shop cancel", Digest: call.Digest}, "other arguments": {Run: run, Target: call.Target, Digest: "e"}} {
		key, _ := effect.Decide(c, nil)
		if was, ok := seen[key]; ok {
			t.Errorf("%s has the key of %s", what, was)
		}
		seen[key] = what
	}
	if second, _ := effect.Decide(takes, []effect.Earlier{{ID: one, Outcome: contract.EffectDone, Key: first, Here: true}}); second == first {
		t.Error("what is done a second time has the key of the first")
	}
	takes.Given = "mine"
	if key, _ := effect.Decide(takes, nil); key != "mine" {
		t.Errorf("the model's own key became %q", key)
	}
}

func TestWhereAToolTakesAKey(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"idempotency_key":{"type":"string"}}}`:                                              "idempotency_key",
		`{"type":"object","properties":{"Idempotency_Key":{"type":"string"},"a":{"type":"integer"}}}`:                       "Idempotency_Key",
		`{"type":"object","properties":{"idempotencyKey":{"type":"string"},"idempotency_key":{"type":"string"}}}`:           "idempotencyKey",
		`{"type":"object","properties":{"idempotency_key":{"type":"integer"}}}`:                                             "",
		`{"type":"object","properties":{"key":{"type":"string"},"in":{"properties":{"idempotencyKey":{"type":"string"}}}}}`: "",
		`{"type":"object"}`: "", `[`: "",
	} {
		if got := effect.KeyProperty(json.RawMessage(schema)); got != want {
			t.Errorf("%s: %q, want %q", schema, got, want)
		}
	}
}

func TestACallMayNameWhatItRepeats(t *testing.T) {
	with, ok, err := effect.Offer(json.RawMessage(`{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"string"}}}`))
	var s struct {
		Required   []string
		Properties map[string]any
	}
	if err := json.Unmarshal(with, &s); err != nil {
		t.Fatal(err)
	}
	if err != nil || !ok || !slices.Equal(s.Required, []string{"a"}) || !slices.Equal(slices.Sorted(maps.Keys(s.Properties)), []string{"a", "again"}) {
		t.Errorf("%v %v %s", ok, err, with)
	}
	taken := json.RawMessage(`{"type":"object","properties":{"again":{"type":"boolean"}}}`)
	if with, ok, err := effect.Offer(taken); ok || err != nil || string(with) != string(taken) {
		t.Errorf("a tool that has such an argument: %v %v %s", ok, err, with)
	}
}

// spelled writes a value in a way of its own: order of fields, space, escapes and forms of numbers.
func spelled(t *rapid.T, v any) string {
	space := rapid.SampledFrom([]string{"", " ", "\n\t"}).Draw(t, "space")
	switch v := v.(type) {
	case map[string]any:
		var fields []string
		for name, inner := range v {
			fields = append(fields, spelled(t, name)+space+":"+space+spelled(t, inner))
		}
		slices.Sort(fields)
		if rapid.Bool().Draw(t, "turned") {
			slices.Reverse(fields)
		}
		return "{" + space + strings.Join(fields, ","+space) + "}"
	case []any:
		var items []string
		for _, inner := range v {
			items = append(items, spelled(t, inner))
		}
		return "[" + strings.Join(items, space+",") + "]"
	case string:
		if rapid.Bool().Draw(t, "escaped") {
			var b strings.Builder
			for _, r := range v {
				if r > 0xffff {
					b.WriteRune(r)
					continue
				}
				fmt.Fprintf(&b, `\u%04x`, r)
			}
			return `"` + b.String() + `"`
		}
	case int64:
		n := big.NewInt(v).String()
		switch rapid.IntRange(0, 3).Draw(t, "form") {
		case 1:
			return n + ".0"
		case 2:
			if v != 0 { // JSON has no 000
				return n + "00E-2"
			}
		case 3:
			if n != "0" && strings.HasSuffix(n, "0") {
				return strings.TrimSuffix(n, "0") + "e+1"
			}
		}
		return n
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func value(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kind := rapid.IntRange(0, 6).Draw(t, "kind")
		if depth == 0 {
			kind = kind % 5
		}
		switch kind {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "b")
		case 2, 3:
			return rapid.Int64Range(-1<<60, 1<<60).Draw(t, "n")
		case 4:
			return rapid.StringMatching(`[a-z<é"\\ 😀]{0,6}`).Draw(t, "s")
		case 5:
			return rapid.SliceOfN(value(depth-1), 0, 3).Draw(t, "list")
		}
		return any(rapid.MapOfN(rapid.StringMatching(`[a-cA]{1,2}`), value(depth-1), 0, 3).Draw(t, "map"))
	})
}

// TestOneDigestForEachSpelling: the same arguments have one digest however they are written, and others another.
func TestOneDigestForEachSpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.MapOfN(rapid.StringMatching(`[a-c]{1,2}`), value(2), 0, 3).Draw(t, "args")
		first, second := spelled(t, args), spelled(t, args)
		a, err := effect.Digest(json.RawMessage(first))
		b, err2 := effect.Digest(json.RawMessage(second))
		if err != nil || err2 != nil || a != b {
			t.Fatalf("%s and %s: %q %q %v %v", first, second, a, b, err, err2)
		}
		other := maps.Clone(args)
		other["a"] = rapid.SampledFrom([]any{int64(1), int64(-1), "1", true, nil, []any{}, map[string]any{}}).Draw(t, "other")
		old, had := args["a"]
		c, err := effect.Digest(json.RawMessage(spelled(t, other)))
		if same := had && fmt.Sprintf("%T%v", old, old) == fmt.Sprintf("%T%v", other["a"], other["a"]); err != nil || (c == a) != same {
			t.Fatalf("%v and %v: %v, %v", args, other, c == a, err)
		}
		if d, err := effect.Digest(json.RawMessage(spelled(t, other)), "a"); err != nil {
			t.Fatal(err)
		} else if delete(other, "a"); d != must(effect.Digest(json.RawMessage(spelled(t, other)))) {
			t.Fatal("what is left out is in the digest")
		}
	})
	large := func(n string) string { return must(effect.Digest(json.RawMessage(`{"n":` + n + `}`))) }
	for _, pair := range [][2]string{{"12345678901234567890", "12345678901234567891"}, {"1", "-1"}, {"1e999999999999", "1e999999999998"}, {"0.1", "0.10000000000000000001"}, {"10", "1"}} {
		if large(pair[0]) == large(pair[1]) {
			t.Errorf("%s and %s have one digest", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{{"0", "-0.00e5"}, {"1e3", "1000.0"}, {"0.5", "5e-1"}} {
		if large(pair[0]) != large(pair[1]) {
			t.Errorf("%s and %s have two digests", pair[0], pair[1])
		}
	}
}

func must(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}

// FuzzCanonical: what is canonical stays what it is, and is JSON of the same meaning.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1.50e3,"b":[null,"\u0000<"]}`, `{"a":{"b":-0}}`, `{"a":1}{}`, `[1]`, `{"a":1e-99999999999999999999}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := effect.Canonical(raw)
		if err != nil {
			return
		}
		twice, err := effect.Canonical(once)
		if err != nil || !bytes.Equal(once, twice) || !json.Valid(once) {
			t.Fatalf("%q became %q and then %q (%v)", raw, once, twice, err)
		}
	})
}

// TestAFailedRepeatSaysNothingOfWhatItRepeated shows that a call whose outcome is not known stays so when its repeat
// under the same key fails: it is not made by itself, and once more only with the same key.
func TestAFailedRepeatSaysNothingOfWhatItRepeated(t *testing.T) {
	c := effect.Call{Run: "r", Target: "shop order", Digest: "d", Takes: true}
	key, _ := effect.Decide(c, nil)
	first := effect.Earlier{ID: "e1", Outcome: contract.EffectUnknown, Key: key, Here: true}
	c.Again = "e1"
	again, refused := effect.Decide(c, []effect.Earlier{first})
	if again != key || refused != "" {
		t.Fatalf("its repeat has the key %q; refused: %q", again, refused)
	}
	earlier := []effect.Earlier{first, {ID: "e2", Outcome: contract.EffectFailed, Key: again, Here: true}}
	c.Again = ""
	if _, refused = effect.Decide(c, earlier); refused == "" {
		t.Error("it was made again by itself")
	}
	c.Again = "e1"
	if again, refused = effect.Decide(c, earlier); again != key || refused != "" {
		t.Errorf("its second repeat has the key %q; refused: %q", again, refused)
	}
}
