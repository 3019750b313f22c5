package contract

// What a computer has read and quotes: sources, and what is said by them.

// MaxCited bounds what is claimed, and the words that are quoted for it, in bytes each.
const MaxCited = 2000

// Support is whether an excerpt says what is claimed by it.
type Support string

// Whether an excerpt says what is claimed. Unknown is never shown as supported.
const (
	SupportYes     Support = "supported"
	SupportNo      Support = "unsupported"
	SupportUnknown Support = "unknown"
)

type (
	// SourceAdded is something that a task read and quotes, as it was then. Its id is the event's subject and
	// follows from all that is said here, so the same page with another text is another source.
	SourceAdded struct {
		Address   string  `json:"address" v:"required,line,max=4096"` // https://…, or a path in the workspace
		Title     string  `json:"title,omitempty" v:"line,max=800"`
		Media     string  `json:"media,omitempty" v:"line,max=200"`
		Text      BlobRef `json:"text" v:"required"`
		Bytes     int64   `json:"bytes" v:"min=0"`             // of the text
		Truncated bool    `json:"truncated,omitempty"`         // there was more than is kept
		Read      string  `json:"read" v:"required,time"`      // when the text was read, RFC 3339
		Commit    string  `json:"commit,omitempty" v:"commit"` // of a path: the checkpoint that has it so
	}
	// CitationRecorded is a claim with the words of a source that it rests on. The host found the excerpt in the
	// source's text, and had a model judge whether it supports the claim, which sees nothing else of the run.
	CitationRecorded struct {
		Citation Citation `json:"citation"`
	}
)

// Validate implements Payload.
func (p SourceAdded) Validate() error { return check(p) }

// Validate implements Payload.
func (p CitationRecorded) Validate() error { return check(p) }

func init() {
	register[SourceAdded](TypeInfo{Type: "source.added", Doc: "A task quotes something for the first time: a page, or a file.", By: []ActorKind{KindAssociate}, Needs: CanWork, Projected: true})
	register[CitationRecorded](TypeInfo{Type: "citation.recorded", Doc: "A claim with the words of a source that it rests on.", By: []ActorKind{KindAssociate}, Needs: CanWork, Projected: true})
}
