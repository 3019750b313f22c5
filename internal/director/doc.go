// Package director is the planning loop: it turns a prompt into tasks, judges
// their results, asks the user where only the user can decide, and reports. It
// runs in a box of its own, without a workspace, and is driven by the host's
// POST /run; everything it does goes through the host (see Message and the
// types in messages.go).
package director
