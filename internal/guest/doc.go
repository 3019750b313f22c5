// Package guest is process 1 of a box, and the host's client of it.
//
// Inside the box, Main serves the host over the tether: commands, terminals, the box's
// loopback, files, and what the binary's services add. It also listens on the box's
// loopback as a proxy, and asks the host about each connection. It has the box's only
// descriptor to the outside and shares it with no other process.
//
// On the host, Client calls it.
package guest
