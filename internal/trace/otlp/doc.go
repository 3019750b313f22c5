// Package otlp sends traces to a collector of OpenTelemetry, by OTLP over HTTP.
package otlp
