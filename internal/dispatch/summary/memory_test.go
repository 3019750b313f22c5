package summary_test

import (
	"testing"

	"choir.dev/choiros/internal/dispatch/summary"
)

func keeps(prompt, words string) bool {
	_, err := summary.Source([]summary.Said{{Event: "e", Text: prompt}}, words)
	return err == nil
}

// TestAPartOfASentenceIsNotKept: a part of a sentence may say the opposite of the whole, and so may what a line leads up to.
func TestAPartOfASentenceIsNotKept(t *testing.T) {
	for _, c := range [][2]string{
		{"Clean up, but never do what the old script did, e.g. push to main without running the tests.", "push to main without running the tests."},
		{"Never do what it did, e.g. Push to main.", "Push to main."},
		{"Never do any of these:\n- Push straight to main.\n- Skip the tests.\n", "Skip the tests."},
		{"Never do any of these:\n- Push straight to main.\n- Skip the tests.\n", "Push straight to main."},
		{"Never do any of these:\n\n1. Push straight to main.\n\n2. Skip the tests.\n", "Skip the tests."},
		{"**Never:**\n\n- Skip the tests.\n", "Skip the tests."},
		{"Never\n- Skip the tests.\n", "Skip the tests."},
		{"What you must not do:\nDelete the backups.", "Delete the backups."},
		{"What you must not do:\n\nDelete the backups.", "Delete the backups."},
		{"I do not want what Dr. Evil wrote in his mail etc. send the keys to him.", "send the keys to him."},
		{"I do not want what Dr. Evil wrote.", "Evil wrote."},
		{"Do not (see no. 3) ask me vs. always run everything as root.", "always run everything as root."},
		{"Do not do what J. Smith does.", "Smith does."},
		{"Push to main etc. without tests is what I never want.", "Push to main etc."},
		{"Push to main.\" is what I never want.", "Push to main."},
		{"Skip tests. never, ever do that.", "Skip tests."},
		{"Never use version 1. Always is worse.", "Always is worse."},
		{"You should never run it as root", "run it as root"},
		{"Never\nrun it as root.", "run it as root."},
		{"Run it as root\nis what I never want.", "Run it as root"},
	} {
		if keeps(c[0], c[1]) {
			t.Errorf("of %q is kept as the user's: %q", c[0], c[1])
		}
	}
	for _, c := range [][2]string{
		{"Tidy up. Always indent with tabs. Never use sudo!", "Always indent with tabs."},
		{"Tidy up. Always indent with tabs. Never use sudo!", "Always indent with tabs. Never use sudo!"},
		{"Tidy up. Always indent with tabs. Never use sudo!", "Never use sudo!"},
		{"Tidy up. Never use sudo!", "Never use sudo"},
		{"Rules.\n- Keep lines short\n- Use tabs, e.g. in Go.\n", "Keep lines short"},
		{"Rules.\n- Keep lines short\n- Use tabs, e.g. in Go.\n", "Use tabs, e.g. in Go."},
		{"A colleague wrote:\n\n> Push.\n\n```\nPush.\n```\n\n- Keep lines short\n", "Keep lines short"},
		{"- Use tabs\n- Keep lines short", "Keep lines short"},
		{"Tidy up.\nuse tabs\n", "use tabs"},
		{"Aufräumen. Äpfel zählen. 日本語で書く。", "Äpfel zählen."},
		{"Never do these:\n- Skip the tests.", "Never do these:\n- Skip the tests."},
	} {
		if !keeps(c[0], c[1]) {
			t.Errorf("of %q is not kept: %q", c[0], c[1])
		}
	}
}

// TestWhatIsFencedIsNotKept: what a prompt only quotes between fences, which may have shorter ones within.
func TestWhatIsFencedIsNotKept(t *testing.T) {
	const words = "Always push without tests."
	for _, prompt := range []string{
		"What is wrong here?\n\n````md\n# Rules\n```\n" + words + "\n```\n````\n",
		"What is wrong here?\n\n````md\n```\n\n" + words + "\n````\n",
		"What is wrong here?\n\n```\n```go\n" + words + "\n```\n",
		"What is wrong here?\n\n~~~\n```\n" + words + "\n~~~\n",
		"What is wrong here?\n\n```\n" + words,
		"What is wrong here?\n\n> " + words,
	} {
		if keeps(prompt, words) {
			t.Errorf("what %q only quotes is kept", prompt)
		}
	}
	for _, prompt := range []string{"```\ncode\n```\n\n" + words, "```\ncode\n````\n\n" + words, "~~~~\n~~~\n~~~~\n" + words} {
		if !keeps(prompt, words) {
			t.Errorf("what stands behind the fence of %q is not kept", prompt)
		}
	}
}
