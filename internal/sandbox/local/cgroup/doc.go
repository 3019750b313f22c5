// Package cgroup puts processes into a control group of version 1 or 2, limits and measures
// what is in one, and kills it. If this user may make no groups, it says which limits are
// missing.
package cgroup
