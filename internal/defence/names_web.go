package defence

// Pages of the web that are read for tasks.
const (
	FetchAddresses  Name = "fetch.addresses"  // row 1: a page is read that the user or a search named, or a person allowed
	FetchPerson     Name = "fetch.person"     // row 1: what the desktop's page says in the user's name is not the user's word
	FetchChoices    Name = "fetch.choices"    // row 1: the answer that a model put into the user's mouth is not the user's word
	FetchRedirect   Name = "fetch.redirect"   // row 1: a redirect to another host is another address
	FetchSize       Name = "fetch.size"       // row 27: of a page only so much is read, decompressed
	FetchQuoted     Name = "fetch.quoted"     // row 1: what a page says can't pass for what the host says
	RequestAsked    Name = "request.asked"    // rows 1, 53: a request that changes something outside is sent after a person allowed it, wherever it goes
	RequestBound    Name = "request.bound"    // row 54: what a person allowed is sent as they were shown it, one time
	RequestOnce     Name = "request.once"     // row 54: nothing sends a request again because its connection broke
	RequestRedirect Name = "request.redirect" // row 1: an answer sends a request nowhere else
	RequestHeaders  Name = "request.headers"  // rows 1, 52: no task signs in with a request, or says whose it is
	RequestLines    Name = "request.lines"    // row 1: a header is one line
	SearchKey       Name = "search.key"       // row 32: the search service's key is in no error
)
