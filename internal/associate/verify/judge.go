package verify

import (
	"strings"

	"choir.dev/choiros/contract"
)

// JudgeCheck turns a finished command into a check's status. A command that
// could not be started, or a shell that did not find one (126, 127), has said
// nothing about the tree.
func JudgeCheck(name string, c contract.Command) contract.Check {
	out := contract.Check{Name: name, Command: c}
	switch {
	case c.ExitCode == 0:
		out.Status = contract.VerificationPass
	case c.ExitCode < 0 || c.ExitCode == 126 || c.ExitCode == 127:
		out.Status = contract.VerificationUnknown
	default:
		out.Status = contract.VerificationFail
	}
	return out
}

// Judge sums checks up: one failure fails, one unknown leaves it unknown, and
// no check at all is unknown, never a pass.
func Judge(profile contract.VerifyProfile, tree string, checks []contract.Check, notes ...string) contract.Verification {
	v := contract.Verification{Profile: profile, Tree: tree, Checks: checks, Status: contract.VerificationPass}
	if len(checks) == 0 {
		v.Status = contract.VerificationUnknown
		if profile == contract.VerifyNone {
			notes = append(notes, "no verification was asked for")
		} else {
			notes = append(notes, "no check was found for what changed")
		}
	}
	for _, c := range checks {
		switch {
		case c.Status == contract.VerificationFail:
			v.Status = contract.VerificationFail
		case c.Status == contract.VerificationUnknown:
			if v.Status == contract.VerificationPass {
				v.Status = contract.VerificationUnknown
			}
			notes = append(notes, c.Name+" could not be run")
		}
	}
	v.Reason = strings.Join(notes, "; ")
	return v
}
