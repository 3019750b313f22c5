package reader

// ReadWith is Read for a server with a certificate of its own.
var ReadWith = read

// SendWith is Send for a server with a certificate of its own.
var SendWith = send

// MakeRequest is the request of HTTP that a Sending becomes.
var MakeRequest = request

// Spoken is what is said in a transcript of a form.
var Spoken = spoken
