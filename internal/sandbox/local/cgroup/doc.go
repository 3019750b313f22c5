// Package cgroup gives processes a control group of either version, limits and
// measures what is in one, and ends it. Where this user may make none it says which
// limits are missing.
package cgroup
