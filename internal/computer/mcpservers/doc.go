// Package mcpservers has the servers of the Model Context Protocol that people added to a
// computer: what is known of them is in its log, each runs in a box of its own or elsewhere,
// and what a person approved of their tools is offered to tasks.
package mcpservers
