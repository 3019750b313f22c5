// Package lockfile reads what a project's lock file says must be installed for
// it. What it returns is all that an installation needs to see of a workspace:
// manifests and locks, no code. A lock that names anything without a hash of its
// content is refused, for then nobody could say what was installed.
package lockfile
