package defence

// Pages of the web that are read for tasks.
const (
	FetchAddresses Name = "fetch.addresses" // row 1: a page is read that the user or a search named, or a person allowed
	FetchPerson    Name = "fetch.person"    // row 1: what the desktop's page says in the user's name is not the user's word
	FetchChoices   Name = "fetch.choices"   // row 1: the answer that a model put into the user's mouth is not the user's word
	FetchRedirect  Name = "fetch.redirect"  // row 1: a redirect to another host is another address
	FetchSize      Name = "fetch.size"      // row 27: of a page only so much is read, decompressed
	FetchQuoted    Name = "fetch.quoted"    // row 1: what a page says can't pass for what the host says
	SearchKey      Name = "search.key"      // row 32: the search service's key is in no error
)
