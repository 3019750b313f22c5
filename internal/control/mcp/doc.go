// Package mcp serves the Model Context Protocol over HTTP: sessions, each of one caller and one
// computer, bounded in number, and what they ask of the API, in this process.
package mcp
