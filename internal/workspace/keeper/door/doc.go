// Package door serves an engine to the host: POST /keeper/{verb} takes and gives JSON in the
// words of package wire, POST /keeper/stream/{verb}?q={JSON} takes or gives raw bytes.
//
// What holds of it: a request is of bounded size, and exactly one value without unknown
// fields. An error is told with its code and hint; one in the middle of a stream ends it
// suddenly, so that half a file is never taken for a whole one.
//
// It never opens a file, and decides nothing: each verb is a method of the engine.
package door
