// Package webpage says what a page of the web is here: its address in the one spelling in which it is
// compared, the addresses that a text names, and what a reader in a box of its own makes of the page; and what a
// request is that changes something outside, in the one spelling in which it is compared, shown and sent.
package webpage
