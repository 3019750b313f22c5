// Package boxes opens the boxes of one computer. For each kind it decides what the box
// sees, may use and may reach; among them are the user's terminals and the keeper's box. It
// also installs the packages that lock files name, for checks.
package boxes
