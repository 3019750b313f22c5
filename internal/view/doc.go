// Package view holds what people and programs see of a computer and ask of it: the nouns of
// the public interface, the validation of their forms, what is said of an error, and the
// framing of a command's streams. The domain returns them; HTTP, the bus, the command line
// and the desktop bind to them. The package knows none of those, and does no I/O beyond the
// framing.
package view
