// Package trace makes OpenTelemetry spans of a run's events, by the conventions for generative
// AI. Nothing is measured: the log has it all, so the same events always give the same spans,
// with the same ids. See docs/tracing.md.
package trace
