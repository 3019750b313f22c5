package defence

// What is quoted from sources, and who writes documents.
const (
	CiteExcerpt    Name = "cite.excerpt"    // row 1: a source is quoted with words that it has
	WriteDocument  Name = "write.document"  // row 1: who writes a document changes no other file
	WriteCitations Name = "write.citations" // row 1: what a document cites was recorded, and says what was recorded
)
