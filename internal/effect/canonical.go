package effect

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
)

// maxExponent bounds how large an exponent of a number is understood; a number with a larger one is compared as it is
// written.
const maxExponent = 1 << 20

// Canonical writes arguments as every spelling of them is written: fields by name, no space, each number in one form.
// Fields at the top that are named in without are left out. The arguments must be one JSON object.
func Canonical(args json.RawMessage, without ...string) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber() // a float has one value for two large numbers
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands behind the arguments")
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("the arguments are no object")
	}
	for name := range fields {
		if slices.Contains(without, name) {
			delete(fields, name)
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(plain(fields)); err != nil { // maps are encoded by their names
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// Digest is the SHA-256 of the canonical form, in hex.
func Digest(args json.RawMessage, without ...string) (string, error) {
	b, err := Canonical(args, without...)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			v[name] = plain(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = plain(inner)
		}
	case json.Number:
		return number(v)
	}
	return v
}

// number writes a number of JSON as digits without a zero at either end and an exponent, so that 1, 1.0 and 10e-1 are one.
func number(n json.Number) json.Number {
	text, sign := string(n), ""
	if rest, ok := strings.CutPrefix(text, "-"); ok {
		text, sign = rest, "-"
	}
	digits, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	shift := new(big.Int)
	if exponent != "" {
		if _, ok := shift.SetString(strings.TrimPrefix(exponent, "+"), 10); !ok || shift.CmpAbs(big.NewInt(maxExponent)) > 0 {
			return n
		}
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	at := int(shift.Int64()) - len(fraction)
	short := strings.TrimRight(digits, "0")
	if at += len(digits) - len(short); short == "" {
		return "0"
	}
	if at == 0 {
		return json.Number(sign + short)
	}
	return json.Number(fmt.Sprintf("%s%se%d", sign, short, at))
}
