// Package mcpserver offers a computer to models over the Model Context Protocol: the methods of
// package rpc that are declared as tools, the few that are streams of bytes over HTTP, and
// documents and files as resources. It has no rights of its own: each call is a request to the
// API with the credentials of whoever calls.
package mcpserver
