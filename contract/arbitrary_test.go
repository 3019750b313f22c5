package contract_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"pgregory.net/rapid"

	"choir.dev/choiros/contract"
)

// arbitrary draws a valid value of any type of the contract, according to the type's rules.
func arbitrary(t *rapid.T, typ reflect.Type, r contract.Rule, depth int) reflect.Value {
	v := reflect.New(typ).Elem()
	switch typ {
	case reflect.TypeFor[json.RawMessage]():
		v.SetBytes([]byte(rapid.SampledFrom([]string{`{}`, `{"a":[1,null,"x"]}`, `{"b":{"b":1,"B":2}}`}).Draw(t, "raw")))
		return v
	case reflect.TypeFor[time.Time]():
		at := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "sec"), rapid.Int64Range(0, 999_999_999).Draw(t, "nsec"))
		v.Set(reflect.ValueOf(at.UTC()))
		return v
	case reflect.TypeFor[contract.CID]():
		v.SetString("abcdefghij012345")
		return v
	case reflect.TypeFor[contract.BlobRef](), reflect.TypeFor[contract.Link]():
		if r.Required || rapid.Bool().Draw(t, "has") {
			v.SetString(string(contract.NewBlobRef(sha256.Sum256([]byte("x")))))
		}
		return v
	}
	if values := contract.EnumValues(typ); values != nil {
		if r.Required || rapid.Bool().Draw(t, "has") {
			v.SetString(rapid.SampledFrom(values).Draw(t, "enum"))
		}
		return v
	}
	switch typ.Kind() {
	case reflect.String:
		v.SetString(arbitraryText(t, r))
	case reflect.Int, reflect.Int64:
		lo, hi := bounds(r)
		v.SetInt(rapid.Int64Range(lo, hi).Draw(t, "n"))
	case reflect.Uint64:
		lo, hi := bounds(r)
		v.SetUint(uint64(rapid.Int64Range(max(lo, 0), hi).Draw(t, "n")))
	case reflect.Float64:
		v.SetFloat(float64(rapid.IntRange(0, 4000).Draw(t, "n")) / 4)
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "b"))
	case reflect.Pointer:
		if depth < 6 && rapid.Bool().Draw(t, "has") {
			p := reflect.New(typ.Elem())
			p.Elem().Set(arbitrary(t, typ.Elem(), contract.Rule{}, depth+1))
			v.Set(p)
		}
	case reflect.Slice:
		lo := 0
		if r.NonEmpty {
			lo = 1
		}
		elem := contract.Rule{}
		if r.Elem != nil {
			elem = *r.Elem
		}
		if n := rapid.IntRange(lo, 3).Draw(t, "len"); n > 0 {
			v.Set(reflect.MakeSlice(typ, n, n))
			for i := range n {
				v.Index(i).Set(arbitrary(t, typ.Elem(), elem, depth+1))
			}
		}
	case reflect.Map:
		if rapid.Bool().Draw(t, "has") {
			v.Set(reflect.ValueOf(map[string]string{"k": "v", "K": ""}))
		}
	case reflect.Struct:
		for _, f := range contract.Fields(typ) {
			v.Field(f.Index).Set(arbitrary(t, f.Type, f.Rule, depth+1))
		}
		fit(v)
	default:
		panic("arbitrary: " + typ.String())
	}
	return v
}

func bounds(r contract.Rule) (lo, hi int64) {
	lo, hi = -1e9, 1e9
	if r.Min != nil {
		lo = int64(*r.Min)
	}
	if r.Max != nil {
		hi = int64(*r.Max)
	}
	return lo, hi
}

func arbitraryText(t *rapid.T, r contract.Rule) string {
	if !r.Required && rapid.Bool().Draw(t, "empty") {
		return ""
	}
	switch r.Form {
	case "id":
		return contract.DeriveID("x", fmt.Sprint(rapid.Byte().Draw(t, "id")))
	case "commit":
		return strings.Repeat("0a", rapid.SampledFrom([]int{20, 32}).Draw(t, "commit"))
	case "path":
		return rapid.SampledFrom([]string{"a", ".", "a/..b", ".gitignore", "artifacts/é.md", "a b/c\n", ".choir/x"}).Draw(t, "path")
	case "line":
		return rapid.SampledFrom([]string{"x", "héllo <&>\u2028!"}).Draw(t, "line")
	case "time":
		return rapid.SampledFrom([]string{"2026-03-04T05:06:07Z", "2026-03-04T05:06:07.123+01:00"}).Draw(t, "time")
	}
	limit := 1 << 20
	if r.Max != nil {
		limit = int(*r.Max)
	}
	switch s := rapid.SampledFrom([]string{"x", "héllo <&>", "\u2028\t\n", "long"}).Draw(t, "text"); {
	case s == "long":
		return strings.Repeat("y", min(limit, 3000))
	case len(s) > limit:
		return s[:1]
	default:
		return s
	}
}

// fit makes the fields of a drawn struct consistent with each other.
func fit(v reflect.Value) {
	keep := func(names ...string) { // sets every field but the first of these to zero
		for i := range v.NumField() {
			if v.Type().Field(i).Name != names[0] {
				v.Field(i).SetZero()
			}
		}
	}
	switch p := v.Addr().Interface().(type) {
	case *contract.Event:
		p.SpecVersion, p.Source, p.Type = "1.0", contract.Source(p.Computer, contract.KindDirector), "run.started"
		if p.Actor != "" {
			p.Actor = contract.DirectorOf("r").Name()
		}
		p.DataContentType = "application/json"
		if p.DataRef != "" {
			p.Data = nil
		}
	case *contract.ProgramReported:
		if p.Status = ""; p.What == contract.ProgramCall {
			p.Status = contract.CallDone
		}
	case *contract.DirectorTask:
		if p.Kind != contract.KindAgent {
			p.Program = ""
		}
		if p.Document = ""; p.Kind == contract.KindWrite {
			p.Document = "artifacts/é.md"
		}
		p.Version = 1
		for i := range p.Steps {
			p.Steps[i] = contract.Step{Write: &contract.WriteStep{Path: "x", Content: "\x00"}}
			if p.Kind == contract.KindGit {
				p.Steps[i] = contract.Step{Git: &contract.GitStep{Op: contract.GitLog}}
			}
		}
		switch p.Kind {
		case contract.KindAgent, contract.KindInspect, contract.KindResearch, contract.KindWrite:
			p.Steps = nil
		case contract.KindExec:
			p.Steps = append(p.Steps, contract.Step{Run: &contract.RunStep{Argv: []string{"true", ""}}})
		case contract.KindGit:
			p.Steps = append(p.Steps, contract.Step{Git: &contract.GitStep{Op: contract.GitStatus}})
		}
	case *contract.Step:
		*p = contract.Step{Patch: &contract.PatchStep{Diff: "d"}}
	case *contract.RunStep:
		p.Argv[0] = "x"
	case *contract.CommandStarted:
		p.Argv[0] = "x"
	case *contract.VerifySpec:
		for i := range p.Commands {
			p.Commands[i][0] = "x"
		}
	case *contract.GitStep:
		p.Ref = strings.Repeat("a", 40)
	case *contract.Input:
		keep("File")
		p.File = "a"
	case *contract.Part:
		switch {
		case p.Call != nil:
			keep("Call")
		case p.Return != nil:
			keep("Return")
		case p.Reasoning != nil:
			keep("Reasoning")
		case p.Image != nil:
			keep("Image")
		default:
			keep("Text")
			p.Text = "t"
		}
	case *contract.Image:
		p.Media = "image/png"
	case *contract.Message:
		for i := range p.Parts {
			assistants, users := p.Parts[i].Call != nil || p.Parts[i].Reasoning != nil, p.Parts[i].Return != nil || p.Parts[i].Image != nil
			if assistants && p.Role != contract.MessageAssistant || users && p.Role != contract.MessageUser {
				p.Parts[i] = contract.Part{Text: "t"}
			}
		}
	case *contract.TurnChunk:
		keep("Delta")
		p.Delta = "d"
	case *contract.EgressSpec:
		if p.Profile != contract.EgressCustom {
			p.Allow, p.Reason = nil, ""
		}
	case *contract.EffectIntended:
		if p.Again == p.Effect {
			p.Again = ""
		}
		if p.Kind != contract.EffectRequest {
			p.Approval = ""
		} else if p.Approval == "" {
			p.Approval = p.Effect
		}
	case *contract.MCPAdded:
		p.URL, p.Bearer, p.Command, p.Secrets = "", "", []string{"server"}, nil
	case *contract.ApprovalRequested:
		p.Act.URL, p.Act.Method, p.Act.Sends, p.Act.Again = "", "", "", ""
		switch p.Act.Kind {
		case contract.ApprovalFetch:
			p.Act.URL, p.Request = "https://a.example/", nil
		case contract.ApprovalRequest:
			p.Act.URL, p.Act.Method, p.Act.Sends = "https://a.example/", "POST", contract.NewBlobRef([32]byte{})
			if p.Request == nil {
				p.Request = &contract.RequestShown{}
			}
		default:
			p.Request = nil
		}
		p.Digest, _ = p.Act.Digest()
		p.Claim = contract.Claim(p.Claim)
	case *contract.ApprovalAnswered:
		if p.Answer != contract.ApprovalDeny {
			p.Reason = ""
		}
	case *contract.AssociateResult:
		p.Version = 1
		if p.Verification.Status == contract.VerificationFail || p.Status == contract.ResultNeedsInput {
			p.Status = contract.ResultFailed
		}
	case *contract.RunReported:
		p.Status = contract.RunDone
	case *contract.AttemptMoved:
		if p.State == contract.AttemptWorking || p.State == contract.AttemptRepairing || p.State == contract.AttemptReviewing || p.State == contract.AttemptReviewed || p.State == contract.AttemptEnded || (p.Result == nil && p.Verification == nil) {
			p.State = contract.AttemptBegun
		}
		switch p.State {
		case contract.AttemptFinished, contract.AttemptMerged, contract.AttemptTakingBack, contract.AttemptLeft:
			if p.Result == nil {
				p.State = contract.AttemptVerified
			}
		case contract.AttemptVerified:
			if p.Verification == nil {
				p.State = contract.AttemptFinished
			}
		}
	case *contract.RepairRequested:
		p.Repair = max(p.Repair, 1)
	case *contract.ReviewAnswered:
		if p.Decision = contract.ReviewDiscard; len(p.Only) > 0 {
			p.Decision = contract.ReviewPublish
		}
	case *contract.DocumentRevised:
		p.Base, p.Path = p.Revision-1, "artifacts/a/b.md"
		p.SHA256 = contract.NewBlobRef(sha256.Sum256([]byte(p.Body)))
	case *contract.DocumentProposed:
		p.SHA256 = contract.NewBlobRef(sha256.Sum256([]byte(p.Body)))
	case *contract.ProposalResolved:
		p.Revision, p.Successor = 0, ""
		switch p.Resolution {
		case contract.ProposalAccepted:
			p.Revision = 7
		case contract.ProposalSuperseded:
			p.Successor = contract.DeriveID(p.Proposal, "successor")
		}
	case *contract.Theme:
		p.Scheme, p.Colors = "dark", map[string]string{}
		for _, name := range contract.ThemeColors {
			p.Colors[name] = "#A0b1c2"
		}
	}
}
