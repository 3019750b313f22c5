// Package lockfile reads from a project's lock file what must be installed for it. The
// result is all that an installation needs of a workspace: manifests and lock files, no
// code. A lock file that names anything without a hash of its content is refused, because
// then nobody could say what was installed.
package lockfile
