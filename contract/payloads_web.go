package contract

// MaxURL bounds the address of a page, in bytes.
const MaxURL = 2048

type (
	// FoundPage is one result of a search.
	FoundPage struct {
		URL   string `json:"url" v:"required,line,max=2048"`
		Title string `json:"title,omitempty" v:"line,max=800"`
	}
	// SearchAnswered is what a search service answered: the addresses that it named, which the run's tasks
	// may read without asking a person.
	SearchAnswered struct {
		Provider string      `json:"provider" v:"required,line,max=64"`
		Query    string      `json:"query" v:"required,max=2000"`
		Results  []FoundPage `json:"results,omitempty" v:"items=50"`
	}
	// PageFetched is a page that was read for a task, as text in a blob. URL is the address that was asked
	// for, From the one that answered, which differs where the server named another place.
	PageFetched struct {
		URL       string  `json:"url" v:"required,line,max=2048"`
		From      string  `json:"from" v:"required,line,max=2048"`
		Title     string  `json:"title,omitempty" v:"line,max=800"`
		Media     string  `json:"media" v:"required,line,max=200"` // the media type that the server named
		Status    int     `json:"status" v:"min=100,max=999"`
		Bytes     int64   `json:"bytes" v:"min=0"` // of the answer's body, decompressed
		Text      BlobRef `json:"text" v:"required"`
		Truncated bool    `json:"truncated,omitempty"` // there was more than is kept
	}
)

// Validate implements Payload.
func (p FoundPage) Validate() error { return check(p) }

// Validate implements Payload.
func (p SearchAnswered) Validate() error { return check(p) }

// Validate implements Payload.
func (p PageFetched) Validate() error { return check(p) }

func init() {
	register[SearchAnswered](TypeInfo{Type: "search.answered", Doc: "A search service answered a task.", By: []ActorKind{KindAssociate}, Needs: CanNetwork, Projected: false})
	register[PageFetched](TypeInfo{Type: "page.fetched", Doc: "A page was read for a task, in a box without the workspace.", By: []ActorKind{KindAssociate}, Needs: CanNetwork, Projected: false})
}
