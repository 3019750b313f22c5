// Package guest is process 1 of a box, and the host's client of it.
//
// Inside, Main serves the host over the tether: commands, terminals, the box's
// loopback, files, and what the binary's services add. It also listens on the
// box's loopback as a proxy, whose every connection the host decides on. It
// holds the box's only descriptor to the outside and shares it with nobody.
//
// Outside, Client speaks to it.
package guest
