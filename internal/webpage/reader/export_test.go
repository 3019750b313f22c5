package reader

// ReadWith is Read for a server with a certificate of its own.
var ReadWith = read
