// Package tools holds what an agent can do in a task's box: read, write, edit,
// search, run commands, look at git. Handler serves the tools from the box's
// guest; Table describes them, to models as well as to the host, which checks
// a task's tools[] and the read-only flag against it before it forwards a call.
//
// Files are reached through os.Root, so no path leaves the workspace, by
// whatever symlink. Every output is bounded, and says so when it was cut.
package tools
