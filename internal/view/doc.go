// Package view holds what people and programs see of a computer and ask of it:
// the nouns of the public interface, how their forms are checked, what is said
// of an error, and how a command's streams are framed. The domain returns them;
// HTTP, the bus, the command line and the desktop bind to them. It knows none of
// those, and does no I/O beyond the framing.
package view
