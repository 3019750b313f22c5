package effect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"choir.dev/choiros/contract"
)

// Again is the argument by which a model makes a call once more that the ledger would refuse: the earlier effect's id.
const Again = "again"

// KeyProperty is the name under which a tool takes an idempotency key, "" if its schema names none.
func KeyProperty(schema json.RawMessage) string {
	var s struct {
		Properties map[string]struct {
			Type json.RawMessage `json:"type"`
		} `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return ""
	}
	var found []string
	for name, p := range s.Properties {
		if n := strings.ToLower(name); (n == "idempotency_key" || n == "idempotencykey") && string(p.Type) == `"string"` {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found) // two of them are one tool's oddity; the choice is the same each time
}

// Offer is a schema of arguments that also has Again, unless the tool has an argument of that name itself: such a call
// can't be made once more.
func Offer(schema json.RawMessage) (with json.RawMessage, offered bool, err error) {
	var s map[string]json.RawMessage
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, false, err
	}
	properties := map[string]json.RawMessage{}
	if s["properties"] != nil {
		if err := json.Unmarshal(s["properties"], &properties); err != nil {
			return nil, false, err
		}
	}
	if _, taken := properties[Again]; taken {
		return schema, false, nil
	}
	properties[Again] = json.RawMessage(`{"type":"string","maxLength":36,"description":"Only after this call was refused because it was made before: the effect that the refusal names, if it is to be made once more."}`)
	if s["properties"], err = json.Marshal(properties); err != nil {
		return nil, false, err
	}
	with, err = json.Marshal(s)
	return with, err == nil, err
}

// Earlier is an effect of the same run with the same target and arguments.
type Earlier struct {
	ID      string
	Outcome contract.EffectOutcome // "": it is under way
	Found   contract.EffectFound   // a person's word, which counts for more
	Key     string                 // that the service took
	// Here says that the loop which calls now made it, and was told how it ended.
	Here bool
}

// happened reports whether it is known that it happened.
func (e Earlier) happened() bool {
	return e.Found == contract.FoundDone || e.Found == "" && e.Outcome == contract.EffectDone
}

// failed reports whether it is known that nothing was done, by what the service said.
func (e Earlier) failed() bool { return e.Found == "" && e.Outcome == contract.EffectFailed }

// settled reports whether it is known what came of it.
func (e Earlier) settled() bool {
	return e.Found != "" || e.Outcome != contract.EffectUnknown && e.Outcome != ""
}

// Call is a call that is to be made.
type Call struct {
	Run, Target, Digest string
	// Takes says that the service takes an idempotency key as one of the tool's arguments, which is what it says of itself.
	Takes bool
	// Harmless says that the service says of itself that what was done once is not done twice.
	Harmless bool
	// Once says that not even what is done is made again: a person allowed it one time.
	Once bool
	// Again is the earlier effect that the call names, and Given the idempotency key that the model chose itself.
	Again, Given string
}

// Decide says whether a call may be made after the earlier ones, oldest first, and which idempotency key goes with it. The
// newest that did not fail counts: a repeat that failed takes nothing back of what was done before it, or may have been.
// What is unknown is never made again by itself: only after a person found that it did not happen, or where the key that
// the service took lets it tell the second time from another one. refused says why not and how to go on, for the model.
func Decide(c Call, earlier []Earlier) (key, refused string) {
	n := 0
	for _, e := range earlier {
		if e.settled() {
			n++
		}
	}
	// What is not known has the key of what would be made now. Once it is known, the next one is another effect.
	key = c.Given
	if key == "" {
		key = contract.DeriveID(c.Run, fmt.Sprintf("effect-key:%s:%s:%d", c.Target, c.Digest, n))
	}
	if len(earlier) == 0 {
		if c.Again != "" {
			return "", fmt.Sprintf("This run made no such call before, so %s names nothing. Leave %s out.", clip(c.Again), Again)
		}
		return key, ""
	}
	last, which := earlier[len(earlier)-1], ""
	for _, e := range slices.Backward(earlier) {
		// That a repeat failed says nothing of the one that it repeated.
		if !e.failed() {
			if last.failed() {
				last, which = e, " that did not fail"
			}
			break
		}
	}
	if c.Again != "" && c.Again != last.ID {
		return "", fmt.Sprintf("The newest call like this one%s is the effect %s, not %s. Nothing was sent.", which, last.ID, clip(c.Again))
	}
	named := c.Again == last.ID
	switch {
	case last.Found == contract.FoundNotDone && named:
		if last.Key != "" {
			key = last.Key
		}
		return key, ""
	case last.Found == contract.FoundNotDone:
		return "", fmt.Sprintf("The user found that the effect %s did not happen. Nothing was sent now: to make it, call with %s: %q.", last.ID, Again, last.ID)
	case last.happened() && c.Once:
		return "", fmt.Sprintf("This was done already (effect %s), and the user allowed it one time. Nothing was sent. If it is to be done once more, that takes another prompt of the user; say so in finish.", last.ID)
	case last.happened() && (named || c.Harmless || last.Here && last.Found == ""):
		return key, ""
	case last.happened():
		return "", fmt.Sprintf("This run has done this already (effect %s), in another attempt or task. Nothing was sent now. Go on from there; only if it is to be done once more, call with %s: %q.", last.ID, Again, last.ID)
	case last.failed(): // and so did all before it
		return key, ""
	case last.Outcome == "":
		return "", fmt.Sprintf("The same call is under way (effect %s). Nothing was sent. Wait for it and do not make it twice.", last.ID)
	case named && last.Key != "" && c.Takes:
		return last.Key, ""
	}
	return "", unknown(c, last)
}

// unknown says why what may have happened is not made again, and how to go on.
func unknown(c Call, last Earlier) string {
	said := fmt.Sprintf("The same call was made before (effect %s), and whether it happened is not known, so it is not made again by itself. Nothing was sent now. "+
		"Look first whether it happened, with a tool that only reads. If you can't tell, end with a request of type approval that names the effect, so that the user is asked; they look and say it with: "+
		"choir effects resolve %s --done or --not-done. ", last.ID, last.ID)
	if last.Key != "" && c.Takes && c.Once {
		return said + fmt.Sprintf("It was sent with the idempotency key %s, which keeps it from being done twice only where the service heeds such keys. If it is to be sent again all the same, call with %s: %q: "+
			"the user is asked once more, is told that it may have been done, and it carries the same key.", last.Key, Again, last.ID)
	}
	if last.Key != "" && c.Takes {
		return said + fmt.Sprintf("The service took the idempotency key %s: if the user wants it made again, call with %s: %q, and it is sent with the same key.", last.Key, Again, last.ID)
	}
	return said + fmt.Sprintf("Once they found that it did not happen, call with %s: %q.", Again, last.ID)
}

func clip(s string) string { return contract.Shorten(s, 60) }
