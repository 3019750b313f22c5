package gitserve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"choir.dev/choiros/contract"
	"choir.dev/choiros/internal/fault"
)

// The packet lines of git's protocol (pkt-line): four hexadecimal digits of length, which
// include themselves, then the text; "0000" ends a list. This package reads nothing else of
// the protocol: only which refs a push names, and what git reports of each.

const (
	longestLine = 65520
	mostRefs    = 10_000
	longestName = 1024 // of a ref, the same as contract.PushedRef's limit
	mostOrders  = 8 << 20
)

// line encodes one packet line.
func line(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

var errLines = fault.New("", fault.Invalid, "", errors.New("this is not what git sends"))

// readLine reads one packet line; "" with end set is the end of a list.
func readLine(r io.Reader) (text string, end bool, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", false, err
	}
	n, err := strconv.ParseUint(string(head[:]), 16, 17)
	switch {
	case err != nil || n > longestLine || n > 0 && n < 4:
		return "", false, errLines
	case n == 0:
		return "", true, nil
	}
	b := make([]byte, n-4)
	_, err = io.ReadFull(r, b)
	return string(b), false, err
}

// pushCommands are the commands with which a push begins: what to do with which ref.
type pushCommands struct {
	raw  bytes.Buffer // as received, up to the end of the list
	refs []contract.PushedRef
	can  []string // the client's capabilities
}

// readOrders reads the commands with which a push begins; it is an error if there is none.
func readOrders(r io.Reader) (*pushCommands, error) {
	o := &pushCommands{}
	in := io.TeeReader(r, &o.raw)
	for {
		text, end, err := readLine(in)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = errLines
			}
			return nil, err
		}
		if end {
			return o, nil
		}
		if o.raw.Len() > mostOrders || len(o.refs) >= mostRefs {
			return nil, fault.New("", fault.Exhausted, "Push fewer refs at once.", errors.New("the push names too many refs"))
		}
		text, can, first := strings.Cut(text, "\x00")
		if first && len(o.refs) == 0 {
			o.can = strings.Fields(can)
		}
		text = strings.TrimSuffix(text, "\n")
		if strings.HasPrefix(text, "shallow ") {
			continue
		}
		words := strings.SplitN(text, " ", 3)
		if len(words) != 3 || !objectID(words[0]) || !objectID(words[1]) {
			return nil, errLines // such as a push-cert, which is not offered
		}
		if len(words[2]) > longestName || !utf8.ValidString(words[2]) {
			// The event of the push could not name the ref.
			return nil, fault.New("", fault.Invalid, "Choose another name.",
				fmt.Errorf("a ref's name is not UTF-8, or longer than %d bytes: %q", longestName, contract.Clip(words[2], 80)))
		}
		o.refs = append(o.refs, contract.PushedRef{Name: words[2], Old: unlessZero(words[0]), New: unlessZero(words[1])})
	}
}

// mainBranch is the branch of checkpoints.
const mainBranch = "refs/heads/main"

// checkpoints refuses a push that the history of the computer's own files can't take: that
// history is one branch, and nothing is removed from it.
func (o *pushCommands) checkpoints() error {
	denied := func(hint, text string) error { return fault.New("", fault.Denied, hint, errors.New(text)) }
	for _, r := range o.refs {
		switch {
		case r.Name != mainBranch:
			return denied("git push origin HEAD:main", "checkpoints have the one branch main, and no tags")
		case r.New == "":
			return denied("choir restore goes back in it.", "the history of the computer's own files can't be deleted")
		case r.Old == "" || len(r.Old) != 40 || len(r.New) != 40:
			return denied("Clone it, commit there, and push that.", "this does not go on from a checkpoint")
		}
	}
	if len(o.refs) != 1 {
		return denied("git push origin HEAD:main", "checkpoints have the one branch main")
	}
	return nil
}

func objectID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

func unlessZero(id string) string {
	if strings.Trim(id, "0") == "" {
		return ""
	}
	return id
}

// understands says whether the client has a capability.
func (o *pushCommands) understands(word string) bool { return slices.Contains(o.can, word) }

// sideband is how many bytes of a line the client accepts on a side band, 0 if it has no
// side bands.
func (o *pushCommands) sideband() int {
	switch {
	case o.understands("side-band-64k"):
		return longestLine - 5
	case o.understands("side-band"):
		return 995
	}
	return 0
}

// taken lists the refs that git reports as updated.
func (o *pushCommands) taken(answer []byte) ([]contract.PushedRef, error) {
	report := answer
	if o.sideband() > 0 {
		var b bytes.Buffer
		for r := bytes.NewReader(answer); ; {
			text, end, err := readLine(r)
			if err != nil {
				return nil, errLines
			}
			if end {
				break
			}
			if rest, ok := strings.CutPrefix(text, "\x01"); ok {
				b.WriteString(rest)
			}
		}
		report = b.Bytes()
	}
	ok := map[string]bool{}
	for r := bytes.NewReader(report); ; {
		text, end, err := readLine(r)
		if errors.Is(err, io.EOF) || end {
			break
		}
		if err != nil {
			return nil, errLines
		}
		if name, is := strings.CutPrefix(strings.TrimSuffix(text, "\n"), "ok "); is {
			ok[name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(o.refs), func(r contract.PushedRef) bool { return !ok[r.Name] }), nil
}

// eventRefs returns the refs that the event of a push lists, and how many it leaves out: an
// event has a limited size, whatever the escaping of names adds.
func eventRefs(refs []contract.PushedRef) (first []contract.PushedRef, more int, err error) {
	room := maxEventRefs
	for i, r := range refs {
		b, err := json.Marshal(r)
		if err != nil {
			return nil, 0, err
		}
		if room -= len(b); i == maxRefs || room < 0 {
			return refs[:i], len(refs) - i, nil
		}
	}
	return refs, 0, nil
}

// refused returns the answer that git would have given if it had refused every ref for a
// reason.
func (o *pushCommands) refused(why string) []byte {
	why = strings.Join(strings.Fields(why), " ")
	var report strings.Builder
	report.WriteString(line("unpack ok\n"))
	for _, r := range o.refs {
		report.WriteString(line("ng " + r.Name + " " + contract.Clip(why, 1000) + "\n"))
	}
	report.WriteString("0000")
	most := o.sideband()
	if most == 0 {
		return []byte(report.String())
	}
	var out strings.Builder
	for part := range slices.Chunk([]byte(report.String()), most) {
		out.WriteString(line("\x01" + string(part)))
	}
	out.WriteString("0000")
	return []byte(out.String())
}
