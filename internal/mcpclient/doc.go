// Package mcpclient uses a server of the Model Context Protocol, whoever wrote it: what it offers
// becomes declarations of tools once a person approved each, and what it says is material. It
// starts nothing and reaches nothing: it is given the two ends of a connection.
package mcpclient
