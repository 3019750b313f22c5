package httpio

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
)

// listPiece is how many bytes of a list are encoded before they are sent.
const listPiece = 64 << 10

var marshaler = reflect.TypeFor[json.Marshaler]()

// WriteJSON writes v as JSON. A long list is sent in pieces, so that its reader is at work on
// the first ones while the others are encoded. An error behind the first piece leaves an
// answer that is no JSON.
func WriteJSON(w io.Writer, v any) error {
	if !isPlainList(v) {
		return encoder(w).Encode(v)
	}
	var piece bytes.Buffer
	encode := encoder(&piece)
	list := reflect.ValueOf(v)
	begin := byte('[')
	for i := range list.Len() {
		piece.WriteByte(begin)
		begin = ','
		if err := encode.Encode(list.Index(i).Addr().Interface()); err != nil {
			return err
		}
		piece.Truncate(piece.Len() - 1) // Encode ends with a line's end
		if piece.Len() < listPiece {
			continue
		}
		if _, err := piece.WriteTo(w); err != nil {
			return err
		}
	}
	piece.WriteString("]\n")
	_, err := piece.WriteTo(w)
	return err
}

func encoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// isPlainList reports whether v is written as a list of what it holds, and holds something.
func isPlainList(v any) bool {
	t := reflect.TypeOf(v)
	return t != nil && t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && !t.Implements(marshaler) && reflect.ValueOf(v).Len() > 0
}
