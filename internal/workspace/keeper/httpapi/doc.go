// Package httpapi serves an engine over HTTP to the host: POST /keeper/{verb} takes and gives
// JSON in the types of package wire, POST /keeper/stream/{verb}?q={JSON} takes or gives raw
// bytes.
//
// It guarantees the following. A request is of bounded size, and exactly one value without
// unknown fields. An error is returned with its code and hint; an error in the middle of a
// stream breaks the stream off, so that half a file is never taken for a whole one.
//
// It never opens a file, and decides nothing: each verb is a method of the engine.
package httpapi
